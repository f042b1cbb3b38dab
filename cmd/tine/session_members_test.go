package main

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
)

func TestParseMembers(t *testing.T) {
	got, err := parseMembers([]string{"a=3", "b=1"}, []string{"a=base", `r={"size":"small"}`, "d=/t/x=y"})
	want := map[string]api.NewMember{
		"a": {Instances: 3, Template: json.RawMessage(`"base"`)}, "b": {Instances: 1},
		"r": {Template: json.RawMessage(`{"size":"small"}`)}, "d": {Template: json.RawMessage(`"/t/x=y"`)},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := parseMembers(nil, nil); got != nil || err != nil {
		t.Errorf("of nothing: %v, %v", got, err)
	}
	for _, tt := range []struct{ instances, template, want string }{
		{"a", "", "SERVER=N"}, {"=2", "", "SERVER=N"}, {"a=0", "", "above 0"}, {"a=x", "", "above 0"},
		{"", "a", "SERVER=TEMPLATE"}, {"", "a=", "SERVER=TEMPLATE"}, {"", "=x", "SERVER=TEMPLATE"},
		{"a=1 a=2", "", "twice"}, {"", "a=x a=y", "twice"},
	} {
		if _, err := parseMembers(strings.Fields(tt.instances), strings.Fields(tt.template)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q %q: %v, want %q", tt.instances, tt.template, err, tt.want)
		}
	}
}
