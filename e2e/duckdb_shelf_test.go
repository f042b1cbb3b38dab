//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// duckQuery runs SQL in a session's DuckDB and returns the rows of the last
// statement.
func duckQuery(ctx context.Context, u user, sql string) ([][]json.RawMessage, error) {
	text, err := u.call(ctx, "execute_query", object{"sql": sql})
	if err != nil {
		return nil, err
	}
	var result struct {
		Success   bool
		Truncated bool
		Rows      [][]json.RawMessage
	}
	if err := decodeInto([]byte(text), &result); err != nil {
		return nil, err
	}
	if !result.Success || result.Truncated {
		return nil, fmt.Errorf("%q: %s", sql, text)
	}
	return result.Rows, nil
}

// duckShelf is a table of the original DuckDB server.
func duckShelf(server string) *shelf {
	return &shelf{
		server: server,
		put: func(ctx context.Context, u user, key, value string, _ bool) error {
			text, err := u.call(ctx, "execute_query", object{"sql": fmt.Sprintf(
				"CREATE TABLE IF NOT EXISTS shelf (k TEXT PRIMARY KEY, v TEXT); INSERT OR REPLACE INTO shelf VALUES ('%s', '%s') RETURNING k, v", key, value)})
			return expect(text, value, err)
		},
		drop: func(ctx context.Context, u user, key string) error {
			_, err := duckQuery(ctx, u, fmt.Sprintf("DELETE FROM shelf WHERE k = '%s'", key))
			return err
		},
		all: func(ctx context.Context, u user) (map[string]string, error) {
			rows, err := duckQuery(ctx, u, "SELECT k, v FROM shelf")
			var failure *toolFailure
			if errors.As(err, &failure) && strings.Contains(failure.text, "does not exist") {
				return map[string]string{}, nil
			}
			if err != nil {
				return nil, err
			}
			all := map[string]string{}
			for _, row := range rows {
				var k, v string
				if len(row) != 2 || json.Unmarshal(row[0], &k) != nil || json.Unmarshal(row[1], &v) != nil {
					return nil, fmt.Errorf("two texts were asked for: %s", row)
				}
				all[k] = v
			}
			return all, nil
		},
	}
}
