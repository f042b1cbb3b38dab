package wire_test

import (
	"testing"

	"github.com/tine-mcp/tine/internal/wire"
)

func TestHeader(t *testing.T) {
	// The pairs are those of the specification's table.
	for plain, encoded := range map[string]string{
		"us-west1":           "us-west1",
		"Hello, 世界":          "=?base64?SGVsbG8sIOS4lueVjA==?=",
		" padded ":           "=?base64?IHBhZGRlZCA=?=",
		"line1\nline2":       "=?base64?bGluZTEKbGluZTI=?=",
		"=?base64?literal?=": "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=",
		"":                   "",
		"in the middle":      "in the middle",
	} {
		if got := wire.EncodeHeader(plain); got != encoded {
			t.Errorf("EncodeHeader(%q) = %q, want %q", plain, got, encoded)
		}
		if got, ok := wire.DecodeHeader(encoded); !ok || got != plain {
			t.Errorf("DecodeHeader(%q) = %q, %v, want %q", encoded, got, ok, plain)
		}
	}
	for _, bad := range []string{"=?base64?%%%?=", "=?base64?a?=", "=?base64?SGVs bG8=?="} {
		if got, ok := wire.DecodeHeader(bad); ok {
			t.Errorf("DecodeHeader(%q) = %q", bad, got)
		}
	}
	for _, literal := range []string{"=?BASE64?SGk=?=", "=?base64?", "?=", "=?base64?x", "x?="} {
		if got, ok := wire.DecodeHeader(literal); !ok || got != literal {
			t.Errorf("DecodeHeader(%q) = %q, %v, want it as it is", literal, got, ok)
		}
	}
}

func FuzzHeader(f *testing.F) {
	for _, s := range []string{"", "a", " a", "a\t", "\x7f", "é", "=?base64?=", "=?base64??=", "=?base64?YQ==?=", "a\r\nX-Evil: 1", "\x00", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		enc := wire.EncodeHeader(s)
		for i := range len(enc) {
			if c := enc[i]; c != '\t' && (c < 0x20 || c > 0x7e) {
				t.Fatalf("EncodeHeader(%q) = %q has byte %#x", s, enc, c)
			}
		}
		if enc != "" && (enc[0] == ' ' || enc[0] == '\t' || enc[len(enc)-1] == ' ' || enc[len(enc)-1] == '\t') {
			t.Fatalf("EncodeHeader(%q) = %q: a header loses the space at its ends", s, enc)
		}
		if got, ok := wire.DecodeHeader(enc); !ok || got != s {
			t.Fatalf("%q came back as %q, %v", s, got, ok)
		}
		wire.DecodeHeader(s)
	})
}
