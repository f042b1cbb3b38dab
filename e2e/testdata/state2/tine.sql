-- A state database of schema 2, as a gateway without forks left it: a token, a
-- setting changed at run time, a principal's session and a client's connection
-- to it. $NOW is filled in, because what is unused for long is forgotten.
CREATE TABLE meta (
	key   TEXT PRIMARY KEY,
	value TEXT NOT NULL
) STRICT;
INSERT INTO meta VALUES('gateway_id','gw_cd2744935c01');
CREATE TABLE overrides (
	server  TEXT PRIMARY KEY,
	enabled INTEGER
, settings BLOB) STRICT;
INSERT INTO overrides VALUES('clock',NULL,X'7B2274696D656F7574223A22313773227D');
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
INSERT INTO sessions VALUES('ses_94ad8a6ce54e','bob','default',$NOW,$NOW,NULL);
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
INSERT INTO clients VALUES('a1dc2121344f90e49c0d078cd20a2fa3','ses_94ad8a6ce54e','','bob','2025-11-25',X'7B2270726F746F636F6C56657273696F6E223A22323032352D31312D3235222C226361706162696C6974696573223A7B7D2C22636C69656E74496E666F223A7B226E616D65223A22653265222C2276657273696F6E223A2231227D7D',$NOW,$NOW);
CREATE TABLE tokens (
	name    TEXT PRIMARY KEY,
	hash    TEXT NOT NULL,
	role    TEXT NOT NULL,
	created INTEGER NOT NULL,
	expires INTEGER NOT NULL
) STRICT;
INSERT INTO tokens VALUES('bob','sha256:1c050fe36a46f7717646ed652752e8d689f9561e8d97a43cbc3e442bc3878a46','user',$NOW,0);
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
CREATE TABLE schema_version (version INTEGER NOT NULL) STRICT;
INSERT INTO schema_version VALUES(2);
