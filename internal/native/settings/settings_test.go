package settings

import (
	"strings"
	"testing"
	"time"
)

type sample struct {
	Name string            `json:"name"`
	Max  int64             `json:"max"`
	On   bool              `json:"on"`
	Wait Duration          `json:"wait"`
	Env  map[string]string `json:"env"`
}

func TestDecode(t *testing.T) {
	tests := []struct {
		name string
		from map[string]any
		want sample
		err  string
	}{
		{name: "nil keeps defaults", want: sample{Max: 5}},
		{name: "all", from: map[string]any{"name": "x", "max": uint64(7), "on": true, "wait": "1m30s", "env": map[string]any{"A": "b"}},
			want: sample{Name: "x", Max: 7, On: true, Wait: Duration(90 * time.Second)}},
		{name: "seconds", from: map[string]any{"wait": 2.5}, want: sample{Max: 5, Wait: Duration(2500 * time.Millisecond)}},
		{name: "unknown", from: map[string]any{"nmae": "x"}, err: "settings.nmae is not known; there are env, max, name, on, wait"},
		{name: "string for bool", from: map[string]any{"on": "yes"}, err: "settings.on must be true or false, not a string"},
		{name: "string for number", from: map[string]any{"max": "7"}, err: "settings.max must be a whole number, not a string"},
		{name: "fraction", from: map[string]any{"max": 1.5}, err: "settings.max must be a whole number"},
		{name: "no value", from: map[string]any{"max": nil}, err: "settings.max has no value"},
		{name: "bad span", from: map[string]any{"wait": "soon"}, err: `settings.wait must be a time span such as "30s", or a number of seconds`},
		{name: "long span", from: map[string]any{"wait": 1e300}, err: "settings.wait is too long"},
		{name: "number in env", from: map[string]any{"env": map[string]any{"A": 1}}, err: "settings.env must be a map of strings"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := sample{Max: 5}
			err := Decode(tt.from, &got)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("err = %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if tt.name == "all" {
				if got.Env["A"] != "b" {
					t.Errorf("env = %v", got.Env)
				}
				got.Env = nil
			}
			if got.Name != tt.want.Name || got.Max != tt.want.Max || got.On != tt.want.On || got.Wait != tt.want.Wait {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestDecodeNoSettings(t *testing.T) {
	err := Decode(map[string]any{"a": 1}, &struct{}{})
	if err == nil || !strings.Contains(err.Error(), "has no settings") {
		t.Fatalf("err = %v", err)
	}
}
