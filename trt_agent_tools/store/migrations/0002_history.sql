-- What builds that succeeded tell of later ones. Rows outlive their builds, and are only added and pruned.
-- `setting` is backend, version and device; `model` and `options` are digests; `stamp` is how the model's
-- file lay on the disk, from which its digest is known before it is read again.

CREATE TABLE history (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    build_id TEXT NOT NULL UNIQUE,
    wall REAL NOT NULL,
    backend TEXT NOT NULL,
    version TEXT NOT NULL,
    device TEXT NOT NULL,
    model TEXT NOT NULL,
    options TEXT NOT NULL,
    stamp TEXT,
    sidecars TEXT NOT NULL,
    shape TEXT,
    total_s REAL NOT NULL CHECK (total_s >= 0),
    spans TEXT NOT NULL
);

CREATE INDEX history_by_model ON history (backend, version, device, model, options, number);
CREATE INDEX history_by_stamp ON history (stamp) WHERE stamp IS NOT NULL;
CREATE INDEX history_by_device ON history (backend, device, number);
