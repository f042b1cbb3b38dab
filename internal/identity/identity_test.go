package identity_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/identity"
)

func TestIdentify(t *testing.T) {
	tokens := identity.NewTokens()
	tokens.Add("s3cret-of-ada", identity.Principal{Name: "ada"})
	tokens.Add("s3cret-of-bob", identity.Principal{Name: "bob"})
	tokens.Add("0perator", identity.Principal{Name: "operator", Operator: true})
	tests := []struct {
		header string
		want   string // the principal's name; "-" when refused
	}{
		{"Bearer s3cret-of-ada", "ada"},
		{"bearer s3cret-of-ada", "ada"},
		{"BEARER s3cret-of-bob", "bob"},
		{"Bearer   s3cret-of-bob  ", "bob"},
		{"Bearer 0perator", "operator"},
		{"", "-"},
		{"Bearer", "-"},
		{"Bearer ", "-"},
		{"Bearer s3cret-of-ad", "-"},
		{"Bearer s3cret-of-adaa", "-"},
		{"Bearer S3cret-of-ada", "-"},
		{"Bearer s3cret-of-ada s3cret-of-bob", "-"},
		{"Bearer ada", "-"},
		{"Bearers3cret-of-ada", "-"},
		{"Bearer\ts3cret-of-ada", "-"},
		{"Basic s3cret-of-ada", "-"},
		{"s3cret-of-ada", "-"},
		{" Bearer s3cret-of-ada", "-"},
		{"Bearer s3cret-of-ada, Bearer s3cret-of-bob", "-"},
		{"Bearer " + strings.Repeat("x", 1<<16), "-"},
	}
	for _, tt := range tests {
		p, ok := tokens.Identify(tt.header)
		got := p.Name
		if !ok {
			got = "-"
			if p != (identity.Principal{}) {
				t.Errorf("%.40q is refused and is %+v all the same", tt.header, p)
			}
		}
		if got != tt.want {
			t.Errorf("%.40q is %s, want %s", tt.header, got, tt.want)
		}
		if p.Operator != (tt.want == "operator") {
			t.Errorf("%.40q: operator %v", tt.header, p.Operator)
		}
	}
	if tokens.Open() {
		t.Error("a gateway with tokens is open")
	}
	if s := fmt.Sprintf("%v %+v %#v", tokens, tokens, *tokens); strings.Contains(s, "s3cret") || strings.Contains(s, "0perator") {
		t.Error("a token can be read out of the set")
	}
}

// The operator's own token does not close the door to those without one; a
// wrong token never opens it.
func TestOpen(t *testing.T) {
	tokens := identity.NewTokens()
	check := func(open bool) {
		t.Helper()
		if tokens.Open() != open {
			t.Errorf("open is %v", !open)
		}
		p, ok := tokens.Identify("")
		if ok != open || !p.Anonymous() || p.Operator {
			t.Errorf("nobody is %+v, %v", p, ok)
		}
		for _, wrong := range []string{"Bearer x", "Bearer", "Bearer ", "Basic eDp5", "x"} {
			if p, ok := tokens.Identify(wrong); ok {
				t.Errorf("%q is %+v", wrong, p)
			}
		}
	}
	check(true)
	tokens.Add("op", identity.Principal{Name: "operator", Operator: true})
	check(true)
	if p, ok := tokens.Identify("Bearer op"); !ok || !p.Operator || p.Anonymous() {
		t.Errorf("the operator is %+v, %v", p, ok)
	}
	tokens.Add("a", identity.Principal{Name: "ada"})
	check(false)
	tokens.Add("op2", identity.Principal{Name: "operator", Operator: true})
	check(false)
	tokens.Add("a", identity.Principal{Name: "ada lovelace"})
	if p, _ := tokens.Identify("Bearer a"); p.Name != "ada lovelace" {
		t.Errorf("a token that was given again names %q", p.Name)
	}
}

func FuzzIdentify(f *testing.F) {
	for _, s := range []string{"", "Bearer t0ken", "bearer  t0ken ", "Bearer", "Basic t0ken", "Bearer t0ken t0ken", "\x00", "Bearer\u00a0t0ken"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, header string) {
		tokens := identity.NewTokens()
		tokens.Add("t0ken", identity.Principal{Name: "ada"})
		p, ok := tokens.Identify(header)
		if !ok {
			return
		}
		scheme, token, _ := strings.Cut(header, " ")
		if p.Name != "ada" || strings.TrimSpace(token) != "t0ken" || !strings.EqualFold(scheme, "bearer") {
			t.Errorf("%q is %+v", header, p)
		}
	})
}
