-- Times: `wall` is seconds since the epoch, `at` seconds since the build was accepted, `_s` seconds.
-- `events` is the record of what happened and is only ever added to. Every other row follows from it
-- and is written in the same transaction. What is large is kept once, in `documents` and `snapshots`,
-- which a list does not read.

CREATE TABLE sessions (
    session_id TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL,
    label TEXT,
    policy TEXT NOT NULL,
    budget_s REAL CHECK (budget_s >= 0),
    concurrent_builds INTEGER NOT NULL,
    queued_builds INTEGER NOT NULL,
    extension_left_s REAL NOT NULL,
    created_at TEXT NOT NULL,
    is_default INTEGER NOT NULL CHECK (is_default IN (0, 1)),
    -- What builds have cost that retention has removed since.
    removed_s REAL NOT NULL DEFAULT 0
);

-- A second default session would be a second budget.
CREATE UNIQUE INDEX one_default_session ON sessions (owner) WHERE is_default = 1;

CREATE TABLE builds (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    build_id TEXT NOT NULL UNIQUE,
    session_id TEXT NOT NULL REFERENCES sessions,
    owner TEXT NOT NULL,
    idempotency_key TEXT,
    created_at TEXT NOT NULL,
    wall REAL NOT NULL,
    supervisor TEXT NOT NULL,
    facts TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT,
    started_wall REAL,
    device TEXT,
    worker_pid INTEGER,
    token TEXT,
    at_most_s REAL,
    gpu_s REAL CHECK (gpu_s >= 0),
    last_wall REAL NOT NULL,
    ended INTEGER NOT NULL DEFAULT 0 CHECK (ended IN (0, 1)),
    ended_at REAL,
    ended_wall REAL
);

CREATE UNIQUE INDEX builds_by_key ON builds (owner, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
CREATE INDEX unfinished_builds ON builds (ended) WHERE ended = 0;
CREATE INDEX builds_by_owner ON builds (owner);
CREATE INDEX builds_by_owner_state ON builds (owner, state);
CREATE INDEX builds_by_session ON builds (session_id, owner);
CREATE INDEX builds_by_session_state ON builds (session_id, owner, state);

CREATE TABLE documents (
    number INTEGER PRIMARY KEY REFERENCES builds ON DELETE CASCADE,
    policy TEXT NOT NULL,
    request TEXT NOT NULL,
    build_order TEXT NOT NULL
);

CREATE TABLE snapshots (
    number INTEGER PRIMARY KEY REFERENCES builds ON DELETE CASCADE,
    snapshot TEXT NOT NULL
);

CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    build_id TEXT REFERENCES builds (build_id) ON DELETE CASCADE,
    session_id TEXT REFERENCES sessions ON DELETE CASCADE,
    at REAL NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    -- The live state that the build came to by this event, if it did.
    state TEXT,
    reason TEXT,
    CHECK ((build_id IS NULL) <> (session_id IS NULL))
);

CREATE INDEX events_by_build ON events (build_id);
CREATE INDEX events_by_session ON events (session_id) WHERE session_id IS NOT NULL;

CREATE TABLE verdicts (
    seq INTEGER PRIMARY KEY REFERENCES events ON DELETE CASCADE,
    build_id TEXT NOT NULL REFERENCES builds (build_id) ON DELETE CASCADE,
    at REAL NOT NULL,
    rule TEXT NOT NULL,
    action TEXT NOT NULL
);

CREATE INDEX verdicts_by_build ON verdicts (build_id);

-- One reservation and one settlement a build, whatever is written twice: nothing is counted twice.
CREATE TABLE ledger (
    build_id TEXT NOT NULL REFERENCES builds (build_id) ON DELETE CASCADE,
    kind TEXT NOT NULL CHECK (kind IN ('reserve', 'settle')),
    session_id TEXT NOT NULL REFERENCES sessions,
    wall REAL NOT NULL,
    amount_s REAL CHECK (amount_s >= 0),
    PRIMARY KEY (build_id, kind),
    CHECK (kind = 'reserve' OR amount_s IS NOT NULL)
) WITHOUT ROWID;

CREATE INDEX ledger_by_session ON ledger (session_id, kind, amount_s);
