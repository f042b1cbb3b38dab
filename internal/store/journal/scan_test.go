package journal

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/store"
)

func lineOf(e Entry) []byte {
	e.tidy(time.Now())
	b, _ := finishLine(appendLine(nil, &e), e.Seq)
	return b
}

// FuzzScan reads any bytes as a segment: the lines cover it from end to end, and
// what is a call can be read whole and says the same when it is written again.
func FuzzScan(f *testing.F) {
	one := sample()
	one.Seq = 7
	good := lineOf(one)
	f.Add(bytes.Repeat(good, 3))
	f.Add(good[:len(good)-1])
	f.Add([]byte("{\"journal\":1,\"segment\":1,\"next\":1}\n" + string(good) + "\n\n{}\nx"))
	f.Add([]byte(`{"id":"a","seq":1,"sizes":[-1,0]}` + "\n"))
	f.Add([]byte(`{"id":"a","seq":1,"sizes":[9223372036854775807,9223372036854775807]}` + "\n"))
	f.Add([]byte(`{"id":"a","seq":1,"sizes":[1,1],"params":1,"result":2}` + "\n"))
	f.Add([]byte(`{"id":"a","seq":1,"sizes":[3,0],"params":{"a}` + "\n"))
	f.Add(bytes.Replace(bytes.Repeat(good, 2), []byte("hello"), bytes.Repeat([]byte("x"), chunk), 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		sc := scanner{r: bytes.NewReader(b), end: int64(len(b))}
		at := int64(0)
		for {
			l, err := sc.next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if l.offset != at || l.length <= 0 {
				t.Fatalf("line at %d of %d bytes, want one at %d", l.offset, l.length, at)
			}
			at += l.length
			if (l.kind == torn) != (b[at-1] != '\n') {
				t.Fatalf("kind %d of %q", l.kind, b[l.offset:at])
			}
			if l.kind != call {
				continue
			}
			e, err := sc.listed(&l)
			if err != nil || e.Params != nil && !json.Valid(e.Params) {
				t.Fatalf("%q, %v", e.Params, err)
			}
			whole := line{}
			if whole.read(b[l.offset:at]); whole.kind != call || !reflect.DeepEqual(whole.head, l.head) {
				t.Fatalf("read whole it is %+v, else %+v", whole, l)
			}
			params, result, length := l.head.bodies()
			if length != l.length {
				t.Fatalf("%d bytes, or %d", length, l.length)
			}
			w := l.head.entry()
			w.Params, w.Result = b[l.offset+params:][:l.head.Sizes[0]], b[l.offset+result:][:l.head.Sizes[1]]
			w.Note = ""
			again := lineOf(w)
			if h, ok := parseHead(again); !ok || !h.fits(again) {
				t.Fatalf("written again it is %q", again)
			}
		}
		if at != int64(len(b)) {
			t.Fatalf("the lines end at %d of %d", at, len(b))
		}
	})
}

// FuzzLine writes any texts: a line is one line and reads back.
func FuzzLine(f *testing.F) {
	f.Add(int64(1), "name", "error", []byte(`{}`), []byte(`[]`))
	f.Add(int64(1<<48), "\"\\\n\x00,\"sizes\":[1,2]", "\xff\u2028", []byte("\n\r\n"), []byte(`,"result":`))
	f.Add(int64(math.MaxInt64), strings.Repeat("\x01", 5000), "", []byte(nil), []byte("\""))
	f.Fuzz(func(t *testing.T, seq int64, name, text string, params, result []byte) {
		if seq <= 0 {
			return
		}
		e := Entry{ID: store.CallID(seq), Seq: seq, Name: name, Error: text, Server: text, Params: params, Result: result}
		b := lineOf(e)
		if bytes.IndexByte(b, '\n') != len(b)-1 {
			t.Fatalf("more than a line: %q", b)
		}
		sc := scanner{r: bytes.NewReader(b), end: int64(len(b))}
		l, err := sc.next()
		if err != nil || l.kind != call || l.length != int64(len(b)) {
			t.Fatalf("%+v, %v of %q", l, err, b)
		}
		e.tidy(time.Now())
		if got := l.head.entry(); got.ID != e.ID || got.Name != e.Name || got.Error != e.Error || got.Seq != seq || !bytes.HasPrefix(b, []byte(`{"id":"`+e.ID+`","seq":`)) {
			t.Fatalf("got %+v of %+v", got, e)
		}
		if json.Valid(params) && json.Valid(result) && !json.Valid(b) {
			t.Fatalf("no JSON: %q", b)
		}
	})
}

func TestPartsOfALine(t *testing.T) {
	body := []byte(`{"a":1,"seq":7,"principal":"who_of_a_body","session":"ses_of_a_body"}`)
	for session, want := range map[string]string{
		"": "", "ses_1": "ses_1", `a"b`: `a\"b`, `a\`: `a\\`, "\n": `\u000a`, `,"session":"x`: `,\"session\":\"x`,
	} {
		for _, principal := range []string{"", `x,"session":"y"`, `,"sizes":[1,2]`} {
			for _, seq := range []int64{1, 1 << 40, 1<<63 - 1} {
				b, _ := finishLine(appendLine(nil, &Entry{Principal: principal, Session: session, Error: `,"session":"z"`, Params: body, Result: body}), seq)
				if got := string(sessionOf(b)); got != want {
					t.Errorf("%s: %q, want %q", b, got, want)
				}
				quoted := appendString(nil, principal)
				if got := principalOf(b); !bytes.Equal(got, quoted[1:len(quoted)-1]) {
					t.Errorf("%s: by %q, want %q", b, got, principal)
				}
				if got := seqOf(b); got != seq {
					t.Errorf("%s: %d", b, got)
				}
			}
		}
	}
	for _, b := range []string{"", "\n", `,"session":"`, `{"session":"a"}`, `,"session":"a`} {
		if got := sessionOf([]byte(b)); len(got) != 0 {
			t.Errorf("%s: %q", b, got)
		}
		if got := seqOf([]byte(b)); got != 0 {
			t.Errorf("%s: %d", b, got)
		}
	}
}
