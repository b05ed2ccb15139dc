/* Preloaded, or armed by `arm_fault`: ends its process by SIGKILL at the n-th of some system calls.
 *
 * What was chosen comes from FAULT ("calls nth when parent mark"), for example
 * "fdatasync,fsync 7 before 0 /tmp/mark". `when` is before, after, or half (of a pwrite: half of the
 * bytes are written); `hold` kills nobody: the call waits for a second. With `parent` the parent process is killed too, first. The file `mark` is made when
 * the fault happens, and only then.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static char calls[256], when[16], mark[1024];
static int nth, parent;
static atomic_int count;

void arm_fault(const char *fault)
{
    nth = 0;
    atomic_store(&count, 0);
    calls[0] = ',';
    if (sscanf(fault, "%250s %d %15s %d %1023s", calls + 1, &nth, when, &parent, mark) != 5)
        abort();
    strcat(calls, ",");
}

__attribute__((constructor)) static void arm_from_environment(void)
{
    const char *fault = getenv("FAULT");
    if (fault)
        arm_fault(fault);
}

static void die(void)
{
    int made = open(mark, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (made >= 0)
        close(made);
    if (parent)
        kill(getppid(), SIGKILL);
    for (;;)
        kill(getpid(), SIGKILL);
}

static void hold(void)
{
    int made = open(mark, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (made >= 0)
        close(made);
    sleep(1);
}

static int chosen(const char *name)
{
    char listed[64];
    if (!nth)
        return 0;
    snprintf(listed, sizeof listed, ",%s,", name);
    return strstr(calls, listed) && atomic_fetch_add(&count, 1) + 1 == nth;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define INTERPOSE(name, parameters, arguments)      \
    int name parameters                             \
    {                                               \
        int now = chosen(#name);                    \
        if (now && !strcmp(when, "hold"))           \
            now = 0, hold();                        \
        if (now && strcmp(when, "after"))           \
            die();                                  \
        int returned = REAL(name) arguments;        \
        if (now)                                    \
            die();                                  \
        return returned;                            \
    }

INTERPOSE(fsync, (int fd), (fd))
INTERPOSE(fdatasync, (int fd), (fd))
INTERPOSE(link, (const char *from, const char *to), (from, to))
INTERPOSE(linkat, (int f, const char *from, int t, const char *to, int flags), (f, from, t, to, flags))
INTERPOSE(rename, (const char *from, const char *to), (from, to))
INTERPOSE(renameat, (int f, const char *from, int t, const char *to), (f, from, t, to))
INTERPOSE(unlink, (const char *path), (path))
INTERPOSE(unlinkat, (int f, const char *path, int flags), (f, path, flags))

/* Not from <sys/prctl.h>, where it is variadic. */
int prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d)
{
    int now = chosen("prctl");
    if (now && strcmp(when, "after"))
        die();
    int (*real)(int, unsigned long, unsigned long, unsigned long, unsigned long) =
        dlsym(RTLD_NEXT, "prctl");
    int returned = real(option, a, b, c, d);
    if (now)
        die();
    return returned;
}

#define INTERPOSE_WRITE(name, offset_type)                                          \
    ssize_t name(int fd, const void *data, size_t size, offset_type offset)         \
    {                                                                               \
        int now = chosen("pwrite");                                                 \
        if (now && !strcmp(when, "before"))                                         \
            die();                                                                  \
        ssize_t returned = REAL(name)(fd, data, now ? size / 2 : size, offset);     \
        if (now)                                                                    \
            die();                                                                  \
        return returned;                                                            \
    }

INTERPOSE_WRITE(pwrite, off_t)
INTERPOSE_WRITE(pwrite64, off64_t)
