package sqlite

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/ncruces/go-sqlite3"
)

func split(t testing.TB, sql string) (out []string, err error) {
	s := newSplitter(strings.NewReader(sql))
	for {
		one, err := s.next()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, strings.TrimSpace(one))
	}
}

func TestSplit(t *testing.T) {
	tests := []struct {
		name, sql string
		want      []string
	}{
		{"one", "SELECT 1", []string{"SELECT 1"}},
		{"two", "SELECT 1; SELECT 2;", []string{"SELECT 1;", "SELECT 2;"}},
		{"nothing", " ; ;; -- no\n /* ; */", nil},
		{"strings", `SELECT 'a;b', "c;d", [e;f], ` + "`g;h`; x", []string{`SELECT 'a;b', "c;d", [e;f], ` + "`g;h`;", "x"}},
		{"doubled quotes", `SELECT 'it''s; ok'; y`, []string{`SELECT 'it''s; ok';`, "y"}},
		{"comments", "SELECT 1 -- a;b\n, /* ; */ 2; z", []string{"SELECT 1 -- a;b\n, /* ; */ 2;", "z"}},
		{"star slash", "SELECT /*/ ; */ 1; z", []string{"SELECT /*/ ; */ 1;", "z"}},
		{"trigger", "CREATE TRIGGER t AFTER INSERT ON a BEGIN SELECT CASE WHEN 1 THEN 2 END; UPDATE b SET c=1; END; SELECT 1",
			[]string{"CREATE TRIGGER t AFTER INSERT ON a BEGIN SELECT CASE WHEN 1 THEN 2 END; UPDATE b SET c=1; END;", "SELECT 1"}},
		{"temp trigger, lower case", "create temp trigger if not exists t before delete on a begin select 1;\n-- end;\nend; x",
			[]string{"create temp trigger if not exists t before delete on a begin select 1;\n-- end;\nend;", "x"}},
		{"explained trigger", "EXPLAIN QUERY PLAN CREATE TRIGGER t AFTER INSERT ON a BEGIN SELECT 1; END; x",
			[]string{"EXPLAIN QUERY PLAN CREATE TRIGGER t AFTER INSERT ON a BEGIN SELECT 1; END;", "x"}},
		{"a table called trigger", `CREATE TABLE trigger(a); x`, []string{"CREATE TABLE trigger(a);", "x"}},
		{"unclosed", "SELECT 'a; b", []string{"SELECT 'a; b"}},
		{"numbers and names", "INSERT INTO end1 VALUES(1e5);x", []string{"INSERT INTO end1 VALUES(1e5);", "x"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := split(t, tt.sql)
			if err != nil || strings.Join(got, "|") != strings.Join(tt.want, "|") {
				t.Errorf("got %q, want %q: %v", got, tt.want, err)
			}
		})
	}
	if _, err := split(t, "SELECT '"+strings.Repeat("x", maxSQL)+"'"); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("a huge statement: %v", err)
	}
}

// FuzzSplit holds the splitter against SQLite: where SQLite takes a script, the
// pieces are the statements it finds.
func FuzzSplit(f *testing.F) {
	f.Add("SELECT 1; SELECT ';' -- x\n; SELECT [a;] FROM (SELECT 1 AS [a;])")
	f.Add("CREATE TRIGGER t AFTER INSERT ON a BEGIN SELECT CASE WHEN 1 THEN 2 END; DELETE FROM a; END; SELECT 2")
	f.Fuzz(func(t *testing.T, sql string) {
		if strings.ContainsAny(sql, "\x00") || len(sql) > 500 {
			return
		}
		c, err := sqlite3.Open(":memory:")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.Exec("CREATE TABLE a(b)"); err != nil {
			t.Fatal(err)
		}
		var want []string
		for rest := sql; rest != ""; {
			s, tail, err := c.Prepare(rest)
			if err != nil {
				return
			}
			if s != nil {
				want = append(want, strings.TrimSpace(strings.TrimSuffix(rest, tail)))
				s.Close()
			}
			rest = tail
		}
		got, err := split(t, sql)
		if err != nil || len(got) != len(want) {
			t.Fatalf("%q is split into %q, SQLite has %q: %v", sql, got, want, err)
		}
	})
}

func TestFirstWord(t *testing.T) {
	for sql, want := range map[string]string{
		"vacuum": "VACUUM", " -- x\n/* y */ ; VACUUM INTO 'x'": "VACUUM", "(SELECT 1)": "", "": "", "'vacuum'": "", "-- vacuum": "", "vacuum2": "VACUUM2",
	} {
		if got := firstWord(sql); got != want {
			t.Errorf("%q: %q, want %q", sql, got, want)
		}
	}
}

func readCSV(text string) (out [][]field, err error) {
	r := newCSVReader(strings.NewReader(text))
	for {
		rec, _, err := r.next()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		out = append(out, rec)
	}
}

func TestReadCSV(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"plain", "a,b\n1,2", "a|b/1|2"},
		{"line ends", "a,b\r\n1,2\r\n\r\n\n3,4\n", "a|b/1|2/3|4"},
		{"quotes", "\"a,\"\"b\"\"\",\"c\nd\"\n", "a,\"b\"|c\nd"},
		{"null and empty", ",\"\",x\n", "NULL||x"},
		{"only empties", ",\n", "NULL|NULL"},
		{"one empty string", "\"\"\n", ""},
		{"mark", "\uFEFFa\n", "a"},
		{"carriage return inside", "a\rb,c", "a\rb|c"},
		{"quote later", "a\"b,c", "a\"b|c"},
		{"nothing", "", "-"},
		{"empty lines", "\n\r\n\n", "-"},
		{"not closed", "\"a", "error"},
		{"after a quote", "\"a\"b", "error"},
		{"no end", "a,", "a|NULL"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			recs, err := readCSV(tt.text)
			var lines []string
			for _, r := range recs {
				var fields []string
				for _, f := range r {
					if f.null() {
						f.text = "NULL"
					}
					fields = append(fields, f.text)
				}
				lines = append(lines, strings.Join(fields, "|"))
			}
			got := strings.Join(lines, "/")
			if len(recs) == 0 {
				got = "-"
			}
			if err != nil {
				got = "error"
			}
			if got != tt.want {
				t.Errorf("got %q, want %q: %v", got, tt.want, err)
			}
		})
	}
}

// FuzzCSV: what is written is read again.
func FuzzCSV(f *testing.F) {
	f.Add("a", "b,\"", "")
	f.Add("\r", "\n", " ")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		var line []byte
		for i, s := range []string{a, b, c} {
			if i > 0 {
				line = append(line, ',')
			}
			line = appendField(line, s)
		}
		recs, err := readCSV(string(append(line, '\n')))
		if err != nil || len(recs) != 1 || len(recs[0]) != 3 || recs[0][0].text != strings.TrimPrefix(a, "\uFEFF") || recs[0][1].text != b || recs[0][2].text != c || recs[0][2].null() {
			t.Fatalf("%q is read as %v: %v", line, recs, err)
		}
	})
}

// FuzzReadCSV: nothing that comes in makes it fail otherwise than with an error.
func FuzzReadCSV(f *testing.F) {
	f.Add("a,b\n\"c\",\"d\"\"e\"\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		r := newCSVReader(strings.NewReader(text))
		for n := 0; ; n++ {
			_, _, err := r.next()
			if errors.Is(err, io.EOF) || err != nil {
				return
			}
			if n > len(text) {
				t.Fatal("more records than bytes")
			}
		}
	})
}
