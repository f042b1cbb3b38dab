package config

import (
	"encoding/json"
	"maps"
	"regexp"
	"strings"
)

// A Schema is a JSON Schema, or a part of one.
type Schema map[string]any

// with is the schema with one more keyword.
func (s Schema) with(keyword string, value any) Schema {
	c := maps.Clone(s)
	if c == nil {
		c = Schema{}
	}
	c[keyword] = value
	return c
}

// Placeholder is a text that is filled in when the file is read.
var Placeholder = Schema{"type": "string", "pattern": `\$\{`}

// OrPlaceholder takes a placeholder as well.
func (s Schema) OrPlaceholder() Schema { return Schema{"anyOf": []Schema{s, Placeholder}} }

// orOne takes one string in the place of a list.
func (s Schema) orOne() Schema { return Schema{"anyOf": []Schema{s, {"type": "string"}}} }

var (
	TextSchema     = Schema{"type": "string"}
	textsSchema    = Schema{"type": "array", "items": Schema{"type": []string{"string", "number", "boolean"}}}
	textMapSchema  = Schema{"type": "object", "additionalProperties": Schema{"type": []string{"string", "number", "boolean"}}}
	sizeSchema     = Schema{"anyOf": []Schema{{"type": "integer", "minimum": 0}, {"type": "string", "pattern": `^[0-9_]+ ?([kKmMgGtT][iI]?)?[bB]?$|\$\{`}}}
	durationSchema = Schema{"anyOf": []Schema{{"const": 0}, {"type": "string", "pattern": `^([0-9]{1,6}d)?([0-9.]+(ns|us|µs|ms|s|m|h))*$|^0$|\$\{`}}}
)

// schema is what may stand behind the key.
func (a About) schema() Schema {
	s := a.Schema
	if len(a.Keys) > 0 {
		s = mapSchema(a.Keys)
		instead := a.Schema
		if !a.List { // a key with nothing behind it is an empty map
			s["type"] = []string{"object", "null"}
			if instead != nil {
				instead = Schema{"anyOf": []Schema{instead, {"type": "null"}}}
			}
		}
		if instead != nil {
			// Not anyOf: an editor would mark all of a map and not the key that is wrong.
			s = Schema{"if": Schema{"type": "object"}, "then": s, "else": instead}
		}
		if a.List {
			s = Schema{"type": []string{"array", "null"}, "items": s}
		}
	}
	return s.with("description", plainText(a.Meaning))
}

// mapSchema is that of a map with some keys and no others.
func mapSchema(keys []About) Schema {
	all := Schema{}
	for _, k := range keys {
		all[k.Name] = k.schema()
	}
	return Schema{"type": "object", "properties": all, "additionalProperties": false}
}

// JSONSchema describes a tine.yaml for editors and other programs. It knows what each
// key may be; what keys say of each other only Load does.
func JSONSchema() []byte {
	server := mapSchema(serverTable.About())
	var ways []Schema
	for _, key := range wayKeys {
		ways = append(ways, Schema{"required": []string{key}})
	}
	server["anyOf"] = ways
	top := mapSchema(topTable.About())
	top["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	top["title"] = "tine.yaml"
	top["description"] = "The config of Tine, the MCP gateway whose sessions fork"
	top["patternProperties"] = Schema{"^x-": true} // a place for anchors
	top["$defs"] = Schema{"server": server}
	servers := Schema{"type": "object", "propertyNames": Schema{"pattern": idPattern.String()}, "additionalProperties": Schema{"$ref": "#/$defs/server"}}
	keys := top["properties"].(Schema)
	keys["servers"] = servers.with("description", keys["servers"].(Schema)["description"])
	b, err := json.MarshalIndent(top, "", "  ")
	if err != nil {
		panic(err) // the tables hold nothing that JSON does not
	}
	return append(b, '\n')
}

// Text is how a key is described where there is no Markdown.
func (a About) Text() string { return plainText(a.Meaning) }

// plainText is Markdown without its marks.
func plainText(md string) string {
	return markdownLink.ReplaceAllString(strings.ReplaceAll(md, "`", ""), "$1")
}

var markdownLink = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
