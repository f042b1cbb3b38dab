package sqlite

import (
	"fmt"
	"strings"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/ext/fts5"
)

const (
	maxLength = 16 << 20 // of a string, a blob, a row
	maxSQL    = 4 << 20  // of one statement
)

// mode is what the statement that is being prepared may do.
type mode int

const (
	modeInternal mode = iota // our own statements: everything
	modeQuery                // reads
	modeExecute              // reads and writes
	modeVacuum               // is VACUUM
)

// guard decides what a statement may do, as SQLite asks for each thing it would.
type guard struct {
	conn   *conn
	mode   mode
	denied string // why, for the error
	txn    string // BEGIN, COMMIT or ROLLBACK, when the statement is one
	outer  bool   // it is a PRAGMA that has no effect in a transaction
}

// confine sets the limits of a connection and puts the guard in place.
func (c *conn) confine() error {
	for id, n := range map[sqlite3.LimitCategory]int{
		sqlite3.LIMIT_LENGTH:     maxLength,
		sqlite3.LIMIT_SQL_LENGTH: maxSQL,
		sqlite3.LIMIT_ATTACHED:   1, // VACUUM needs one
		// These take long on long input and can't be interrupted.
		sqlite3.LIMIT_LIKE_PATTERN_LENGTH: 500,
	} {
		c.Limit(id, n)
	}
	for op, on := range map[sqlite3.DBConfig]bool{
		sqlite3.DBCONFIG_DEFENSIVE:      true,
		sqlite3.DBCONFIG_TRUSTED_SCHEMA: false,
	} {
		if _, err := c.Config(op, on); err != nil {
			return fmt.Errorf("configure the connection: %w", err)
		}
	}
	if err := fts5.Register(c.Conn); err != nil {
		return fmt.Errorf("register full-text search: %w", err)
	}
	if err := linearFunctions(c.Conn); err != nil {
		return fmt.Errorf("register functions: %w", err)
	}
	return c.SetAuthorizer(c.guard.authorize)
}

// pragmas that may be read, with or without an argument that names something.
var readPragmas = set("application_id", "collation_list", "compile_options", "data_version", "database_list",
	"encoding", "foreign_key_check", "foreign_key_list", "foreign_keys", "freelist_count", "function_list",
	"index_info", "index_list", "index_xinfo", "integrity_check", "max_page_count", "module_list",
	"page_count", "page_size", "pragma_list", "quick_check", "schema_version", "table_info", "table_list",
	"table_xinfo", "user_version")

// of those, the ones whose argument would set something.
var settable = set("application_id", "encoding", "foreign_keys", "max_page_count", "page_size",
	"schema_version", "user_version", "data_version")

// pragmas that write to the database.
var writePragmas = set("application_id", "user_version", "optimize", "incremental_vacuum", "defer_foreign_keys")

// pragmas that are about the connection: they last for one call.
var callPragmas = set("foreign_keys", "ignore_check_constraints", "recursive_triggers", "case_sensitive_like",
	"legacy_alter_table", "reverse_unordered_selects")

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

func (g *guard) authorize(action sqlite3.AuthorizerActionCode, a, b, schema, _ string) sqlite3.AuthorizerReturnCode {
	if g.mode == modeInternal {
		return sqlite3.AUTH_OK
	}
	deny := func(format string, args ...any) sqlite3.AuthorizerReturnCode {
		if g.denied == "" {
			g.denied = fmt.Sprintf(format, args...)
		}
		return sqlite3.AUTH_DENY
	}
	switch action {
	case sqlite3.AUTH_SELECT, sqlite3.AUTH_READ, sqlite3.AUTH_RECURSIVE:
		return sqlite3.AUTH_OK
	case sqlite3.AUTH_FUNCTION:
		if strings.EqualFold(b, "load_extension") {
			return deny("extensions can't be loaded")
		}
		return sqlite3.AUTH_OK
	case sqlite3.AUTH_PRAGMA:
		return g.pragma(strings.ToLower(a), b, deny)
	case sqlite3.AUTH_ATTACH:
		if g.mode == modeVacuum && a == "" {
			return sqlite3.AUTH_OK
		}
		if g.mode == modeVacuum {
			return deny("VACUUM INTO is not possible: there is no other database; use VACUUM, or export_csv")
		}
		return deny("ATTACH is not possible: there is one database")
	case sqlite3.AUTH_DETACH:
		if g.mode == modeVacuum {
			return sqlite3.AUTH_OK
		}
		return deny("DETACH is not possible: there is one database")
	case sqlite3.AUTH_TRANSACTION:
		g.txn = a
		return sqlite3.AUTH_OK
	}
	if g.mode == modeQuery {
		return deny("query only reads; use execute for statements that change something")
	}
	switch action {
	case sqlite3.AUTH_CREATE_TEMP_INDEX, sqlite3.AUTH_CREATE_TEMP_TABLE, sqlite3.AUTH_CREATE_TEMP_TRIGGER, sqlite3.AUTH_CREATE_TEMP_VIEW:
		g.conn.spoiled = true // what is temporary lasts for one call
	case sqlite3.AUTH_CREATE_VTABLE:
		if schema == "temp" {
			g.conn.spoiled = true
		}
	}
	return sqlite3.AUTH_OK
}

func (g *guard) pragma(name, arg string, deny func(string, ...any) sqlite3.AuthorizerReturnCode) sqlite3.AuthorizerReturnCode {
	switch {
	case readPragmas[name] && (arg == "" || !settable[name]):
		return sqlite3.AUTH_OK
	case g.mode == modeQuery && (writePragmas[name] || callPragmas[name]):
		return deny("query only reads; use execute for PRAGMA %s", name)
	case g.mode == modeExecute && writePragmas[name]:
		return sqlite3.AUTH_OK
	case g.mode == modeExecute && callPragmas[name]:
		g.outer = true
		g.conn.spoiled = true
		return sqlite3.AUTH_OK
	case readPragmas[name]:
		return deny("PRAGMA %s can be read but not set", name)
	}
	return deny("PRAGMA %s is not possible here", name)
}

// prepare compiles the first statement of sql under a mode.
func (c *conn) prepare(m mode, sql string) (stmt *sqlite3.Stmt, tail string, err error) {
	c.guard.mode, c.guard.denied, c.guard.txn, c.guard.outer = m, "", "", false
	stmt, tail, err = c.Prepare(sql)
	if err != nil && c.guard.denied != "" {
		err = refused(c.guard.denied)
	}
	return stmt, tail, err
}

// refused is the error of a statement that the guard does not let through.
type refused string

func (r refused) Error() string { return string(r) }
