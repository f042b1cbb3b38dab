package nativetest

import (
	"encoding/json"
	"testing"
)

func TestSchema(t *testing.T) {
	tests := []struct {
		name, a, b string
		same       bool
	}{
		{"words", `{"type":"string","title":"A","description":"a"}`, `{"type":"string","description":"b"}`, true},
		{"draft", `{"$schema":"x","type":"object","additionalProperties":false}`, `{"type":"object"}`, true},
		{"no properties", `{"type":"object","properties":{},"required":[]}`, `{"type":"object"}`, true},
		{"order of required", `{"required":["a","b"]}`, `{"required":["b","a"]}`, true},
		{"reference", `{"$defs":{"T":{"type":"string","title":"T"}},"properties":{"a":{"$ref":"#/$defs/T"}}}`, `{"properties":{"a":{"type":"string"}}}`, true},
		{"a property called title", `{"properties":{"title":{"type":"string"}}}`, `{}`, false},
		{"type", `{"type":"string"}`, `{"type":"number"}`, false},
		{"default", `{"type":"number","default":1}`, `{"type":"number","default":2}`, false},
		{"missing default", `{"type":"number","default":1}`, `{"type":"number"}`, false},
		{"enum order", `{"enum":["a","b"]}`, `{"enum":["b","a"]}`, false},
		{"minimum", `{"minimum":1}`, `{"minimum":0}`, false},
		{"required", `{"required":["a"]}`, `{}`, false},
		{"nested", `{"items":{"anyOf":[{"const":"a","title":"A"}]}}`, `{"items":{"anyOf":[{"const":"b"}]}}`, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			parse := func(s string) string {
				var v any
				if err := json.Unmarshal([]byte(s), &v); err != nil {
					t.Fatal(err)
				}
				return canonical(t, Schema(v))
			}
			if same := parse(tt.a) == parse(tt.b); same != tt.same {
				t.Errorf("same = %v, want %v", same, tt.same)
			}
		})
	}
}
