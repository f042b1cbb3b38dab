package sqlite

// schema has one step for each version of the database; the first makes version 1.
// A released step is never changed: changes are new steps at the end.
var schema = []string{`
CREATE TABLE meta (
	key   TEXT PRIMARY KEY,
	value TEXT NOT NULL
) STRICT;
CREATE TABLE overrides (
	server  TEXT PRIMARY KEY,
	enabled INTEGER
) STRICT;
CREATE TABLE handles (
	key       TEXT PRIMARY KEY,
	driver    TEXT NOT NULL,
	server    TEXT NOT NULL,
	session   TEXT NOT NULL,
	dir       TEXT NOT NULL,
	data      BLOB,
	spec_hash TEXT NOT NULL,
	link      BLOB,
	created   INTEGER NOT NULL
) STRICT;
CREATE TABLE sessions (
	id      TEXT PRIMARY KEY,
	owner   TEXT NOT NULL,
	kind    TEXT NOT NULL,
	created INTEGER NOT NULL,
	used    INTEGER NOT NULL,
	data    BLOB
) STRICT;
CREATE TABLE clients (
	id        TEXT PRIMARY KEY,
	session   TEXT NOT NULL,
	view      TEXT NOT NULL,
	principal TEXT NOT NULL,
	protocol  TEXT NOT NULL,
	init      BLOB,
	created   INTEGER NOT NULL,
	used      INTEGER NOT NULL
) STRICT;
CREATE INDEX clients_of_session ON clients (session);
`, `
ALTER TABLE overrides ADD COLUMN settings BLOB;
CREATE TABLE tokens (
	name    TEXT PRIMARY KEY,
	hash    TEXT NOT NULL,
	role    TEXT NOT NULL,
	created INTEGER NOT NULL,
	expires INTEGER NOT NULL
) STRICT;
CREATE TABLE credentials (
	server    TEXT NOT NULL,
	principal TEXT NOT NULL,
	data      BLOB,
	changed   INTEGER NOT NULL,
	PRIMARY KEY (server, principal)
) STRICT, WITHOUT ROWID;
CREATE TABLE calls (
	first      INTEGER PRIMARY KEY,
	last       INTEGER NOT NULL,
	segment    INTEGER NOT NULL,
	newest     INTEGER NOT NULL,
	size       INTEGER NOT NULL,
	failed     INTEGER NOT NULL,
	servers    BLOB NOT NULL,
	principals BLOB NOT NULL,
	sessions   BLOB NOT NULL,
	data       BLOB NOT NULL
) STRICT;
`, `
ALTER TABLE sessions ADD COLUMN closed  INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN parent  TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN token   TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN catalog TEXT NOT NULL DEFAULT '';
CREATE INDEX sessions_in_order ON sessions (created DESC, id);
CREATE INDEX sessions_open ON sessions (created DESC, id) WHERE closed = 0;
CREATE INDEX sessions_of_parent ON sessions (parent, created DESC, id) WHERE parent <> '';
CREATE INDEX handles_of_session ON handles (session);
CREATE TABLE events (
	n       INTEGER PRIMARY KEY AUTOINCREMENT,
	session TEXT NOT NULL,
	at      INTEGER NOT NULL,
	kind    TEXT NOT NULL,
	call    INTEGER NOT NULL,
	data    BLOB
) STRICT;
CREATE INDEX events_of_session ON events (session);
CREATE TABLE snapshots (
	id        TEXT PRIMARY KEY,
	name      TEXT NOT NULL,
	owner     TEXT NOT NULL,
	session   TEXT NOT NULL,
	created   INTEGER NOT NULL,
	temporary INTEGER NOT NULL,
	auto      INTEGER NOT NULL,
	size      INTEGER NOT NULL,
	call      INTEGER NOT NULL,
	catalog   TEXT NOT NULL,
	data      BLOB
) STRICT;
CREATE UNIQUE INDEX snapshots_by_name ON snapshots (owner, name) WHERE name <> '';
CREATE TABLE catalogs (
	key     TEXT PRIMARY KEY,
	servers BLOB
) STRICT, WITHOUT ROWID;
CREATE TABLE creations (
	owner   TEXT NOT NULL,
	key     TEXT NOT NULL,
	request TEXT NOT NULL,
	answer  BLOB,
	at      INTEGER NOT NULL,
	PRIMARY KEY (owner, key)
) STRICT, WITHOUT ROWID;
`, `
ALTER TABLE tokens ADD COLUMN unconfirmed INTEGER NOT NULL DEFAULT 0;
`, `
CREATE TABLE server_lists (
	key       TEXT NOT NULL,
	principal TEXT NOT NULL,
	data      BLOB,
	sum       BLOB NOT NULL,
	changed   INTEGER NOT NULL,
	PRIMARY KEY (key, principal)
) STRICT;
`, `
DROP INDEX clients_of_session;
DROP INDEX handles_of_session;
`, `
CREATE TABLE leases (
	id      TEXT PRIMARY KEY,
	owner   TEXT NOT NULL,
	ttl     INTEGER NOT NULL,
	created INTEGER NOT NULL,
	data    BLOB
) STRICT;
CREATE TABLE tool_lists (
	digest TEXT PRIMARY KEY,
	tools  BLOB NOT NULL
) STRICT;
`, `
CREATE TABLE session_tokens (
	id      TEXT PRIMARY KEY,
	session TEXT NOT NULL,
	hash    TEXT NOT NULL,
	run     TEXT NOT NULL,
	servers BLOB,
	allow   BLOB,
	created INTEGER NOT NULL,
	expires INTEGER NOT NULL
) STRICT;
CREATE INDEX session_tokens_of_session ON session_tokens (session);
CREATE TABLE calls_of_runs (
	first      INTEGER PRIMARY KEY,
	last       INTEGER NOT NULL,
	segment    INTEGER NOT NULL,
	newest     INTEGER NOT NULL,
	size       INTEGER NOT NULL,
	failed     INTEGER NOT NULL,
	servers    BLOB NOT NULL,
	principals BLOB NOT NULL,
	sessions   BLOB NOT NULL,
	runs       BLOB NOT NULL,
	data       BLOB NOT NULL
) STRICT;
INSERT INTO calls_of_runs SELECT first, last, segment, newest, size, failed, servers, principals, sessions, X'', data FROM calls;
DROP TABLE calls;
ALTER TABLE calls_of_runs RENAME TO calls;
`, `
CREATE TABLE agent_sessions (
	id      TEXT PRIMARY KEY,
	agent   TEXT NOT NULL,
	owner   TEXT NOT NULL,
	parent  TEXT NOT NULL,
	state   TEXT NOT NULL,
	created INTEGER NOT NULL,
	changed INTEGER NOT NULL,
	data    BLOB
) STRICT;
CREATE INDEX agent_sessions_in_order ON agent_sessions (created DESC, id);
CREATE INDEX agent_sessions_of_owner ON agent_sessions (owner, created DESC, id);
CREATE INDEX agent_sessions_of_parent ON agent_sessions (parent, created DESC, id) WHERE parent <> '';
CREATE INDEX agent_sessions_by_end ON agent_sessions (changed) WHERE state IN ('finished', 'failed', 'stopped');
CREATE TABLE runs (
	id      TEXT PRIMARY KEY,
	session TEXT NOT NULL,
	agent   TEXT NOT NULL,
	owner   TEXT NOT NULL,
	parent  TEXT NOT NULL,
	state   TEXT NOT NULL,
	claim   INTEGER NOT NULL,
	runner  TEXT NOT NULL,
	until   INTEGER NOT NULL,
	created INTEGER NOT NULL,
	changed INTEGER NOT NULL,
	data    BLOB
) STRICT;
CREATE INDEX runs_in_order ON runs (created DESC, id);
CREATE INDEX runs_of_owner ON runs (owner, created DESC, id);
CREATE INDEX runs_of_session ON runs (session, created DESC, id);
CREATE INDEX runs_of_parent ON runs (parent, created DESC, id) WHERE parent <> '';
CREATE INDEX runs_by_state ON runs (state, created DESC, id);
CREATE TABLE callbacks (
	n       INTEGER PRIMARY KEY AUTOINCREMENT,
	parent  TEXT NOT NULL,
	child   TEXT NOT NULL,
	run     TEXT NOT NULL,
	carrier TEXT NOT NULL,
	at      INTEGER NOT NULL,
	data    BLOB
) STRICT;
CREATE INDEX callbacks_of_parent ON callbacks (parent, n);
CREATE INDEX callbacks_waiting ON callbacks (n) WHERE carrier = '';
`, `
ALTER TABLE events ADD COLUMN run   TEXT NOT NULL DEFAULT '';
ALTER TABLE events ADD COLUMN owner TEXT NOT NULL DEFAULT '';
UPDATE events SET owner = coalesce((SELECT s.owner FROM sessions s WHERE s.id = events.session), '');
CREATE INDEX events_of_owner ON events (owner);
CREATE INDEX events_of_run ON events (run) WHERE run <> '';
CREATE TABLE events_dropped (
	owner TEXT PRIMARY KEY,
	n     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TRIGGER events_are_dropped AFTER DELETE ON events BEGIN
	INSERT INTO events_dropped (owner, n) VALUES (old.owner, old.n) ON CONFLICT (owner) DO UPDATE SET n = max(n, excluded.n);
END;
`, `
CREATE TABLE blueprints (
	name     TEXT PRIMARY KEY,
	owner    TEXT NOT NULL,
	operator INTEGER NOT NULL,
	body     BLOB,
	changed  INTEGER NOT NULL
) STRICT;
`}
