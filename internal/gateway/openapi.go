package gateway

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control"
)

// The OpenAPI document is made of the table of routes and the Go types that
// their handlers read and answer, so that it can't say anything else than they
// do.

type object = map[string]any

// rawJSON is a document that is made already.
type rawJSON []byte

func (rawJSON) contents() []content {
	return []content{{media: mediaJSON, of: reflect.TypeFor[map[string]any]()}}
}

func (b rawJSON) write(a *ask) error {
	a.w.Header().Set("Content-Type", mediaJSON)
	return answered(send(a.w, b))
}

func (g *Gateway) openAPI(*ask, none) (rawJSON, error) { return g.routes.document() }

// actions is one API: the table of its operations, and what they have in common.
type actions struct {
	title, about string
	prefix       string // of every path
	all          []action
	document     func() (rawJSON, error) // of OpenAPI, made when it is first asked for
}

func newActions(title, about, prefix string, all []action, version string) *actions {
	t := &actions{title: title, about: about, prefix: prefix, all: all}
	t.document = sync.OnceValues(func() (rawJSON, error) { return t.describe(version) })
	return t
}

// controlActions is the control API.
func controlActions(version string) *actions {
	return newActions("Tine", "The control API of a Tine gateway: servers, sessions that fork, snapshots, calls and tokens.",
		api.Version, controlRoutes(), version)
}

// describe makes the OpenAPI document of an API.
func (t *actions) describe(version string) (rawJSON, error) {
	s := &schemas{made: make(map[string]*jsonschema.Schema), refs: make(map[reflect.Type]*jsonschema.Schema)}
	paths := object{}
	for i := range t.all {
		rt := &t.all[i]
		operation, err := s.operation(rt)
		if err != nil {
			return nil, fmt.Errorf("describing %s %s: %w", rt.method, rt.pattern, err)
		}
		path := t.prefix + strings.ReplaceAll(rt.pattern, restMark, "}")
		item, ok := paths[path].(object)
		if !ok {
			item = object{}
			paths[path] = item
		}
		item[strings.ToLower(rt.method)] = operation
	}
	failure, err := s.of(reflect.TypeFor[api.Error]())
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(object{
		"openapi": "3.1.0",
		"info": object{
			"title": t.title, "version": version, "description": t.about,
		},
		"security": []object{{"bearer": []string{}}, {}},
		"paths":    paths,
		"components": object{
			"schemas": s.made,
			"responses": object{"Error": object{
				"description": "It failed; kind says whose failure it is, and retryable whether another try can help.",
				"content":     object{mediaJSON: object{"schema": failure}},
			}},
			"securitySchemes": object{"bearer": object{
				"type": "http", "scheme": "bearer",
				"description": "A token of the gateway, of its issuer, or of one session. An open gateway on loopback wants none.",
			}},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("writing the OpenAPI document: %w", err)
	}
	return append(b, '\n'), nil
}

// schemas collects those of named types, which others refer to.
type schemas struct {
	made map[string]*jsonschema.Schema
	refs map[reflect.Type]*jsonschema.Schema // what stands for a type where it is used
}

func (s *schemas) operation(rt *action) (object, error) {
	out := object{"operationId": rt.name, "summary": rt.summary, "x-role": rt.role}
	if rt.bound {
		out["x-session-token"] = true
	}
	if rt.right != "" {
		out["x-session-token-right"] = rt.right
	}
	var params []object
	for segment := range strings.SplitSeq(rt.pattern, "/") {
		if strings.HasPrefix(segment, "{") {
			name := strings.Trim(segment, "{.}")
			params = append(params, object{"name": name, "in": "path", "required": true, "schema": object{"type": "string"}})
		}
	}
	if rt.keyed {
		about := "The same key with the same request gives the same answer, for 24 hours."
		if rt.upload {
			about += " Of the request only the query is compared, not the file."
		}
		params = append(params, object{
			"name": control.HeaderKey, "in": "header", "schema": object{"type": "string", "minLength": 1, "maxLength": control.MaxKey, "pattern": "^[!-~]+$"},
			"description": about,
		})
	}
	switch {
	case rt.upload:
		out["requestBody"] = object{"required": true, "content": object{mediaBytes: object{}}}
	case rt.hasBody():
		schema, err := s.of(rt.in)
		if err != nil {
			return nil, err
		}
		if rt.in.Kind() == reflect.Struct {
			s.made[rt.in.Name()].AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}} // they are read strictly
		}
		out["requestBody"] = object{"required": !rt.empty, "content": object{mediaJSON: object{"schema": schema}}}
	}
	if !rt.hasBody() {
		for _, p := range paramsOf(rt.in) {
			params = append(params, object{"name": p.name, "in": "query", "description": p.doc, "schema": p.schema()})
		}
	}
	if params != nil {
		out["parameters"] = params
	}
	responses := object{"default": object{"$ref": "#/components/responses/Error"}}
	out["responses"] = responses
	if len(rt.answers) == 0 {
		responses["204"] = object{"description": "It is done."}
		return out, nil
	}
	for _, c := range rt.answers {
		status := cmp.Or(c.status, http.StatusOK)
		answer, ok := responses[strconv.Itoa(status)].(object)
		if !ok {
			answer = object{"description": http.StatusText(status), "content": object{}}
			responses[strconv.Itoa(status)] = answer
		}
		body := object{}
		if c.of != nil {
			schema, err := s.of(c.of)
			if err != nil {
				return nil, err
			}
			body["schema"] = schema
		}
		answer["content"].(object)[c.media] = body
	}
	return out, nil
}

func (p param) schema() object {
	out := object{}
	switch {
	case p.of == reflect.TypeFor[time.Time]():
		out["type"], out["format"] = "string", "date-time"
	case p.of.Kind() == reflect.Slice:
		out["type"], out["items"] = "array", object{"type": "string"}
	case p.of.Kind() == reflect.Bool:
		out["type"] = "boolean"
		if p.fallback != "" {
			out["default"] = json.RawMessage(p.fallback)
		}
	case p.of.Kind() == reflect.Int64:
		out["type"], out["minimum"], out["maximum"] = "integer", p.min, p.max
		if p.fallback != "" {
			out["default"] = json.RawMessage(p.fallback)
		}
	default:
		out["type"] = "string"
	}
	return out
}

// of returns what stands for a type: a reference for a named struct, which is
// described once.
func (s *schemas) of(t reflect.Type) (*jsonschema.Schema, error) {
	if s.refs[t] == nil {
		if err := s.name(t); err != nil {
			return nil, err
		}
	}
	schema, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: s.all()})
	if err != nil {
		return nil, err
	}
	return notNull(schema), nil
}

// all is what stands for types that are not described by their fields.
func (s *schemas) all() map[reflect.Type]*jsonschema.Schema {
	all := map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[time.Time]():       {Type: "string", Format: "date-time"},
		reflect.TypeFor[json.RawMessage](): {Description: "any JSON"},
		reflect.TypeFor[api.Logprob]():     {Description: "a number, where it is known"},
		reflect.TypeFor[api.Kind](): {Type: "string", Enum: []any{
			api.KindTool, api.KindInfrastructure, api.KindTimeout, api.KindRefused, api.KindInvalid, api.KindLost,
		}},
	}
	maps.Copy(all, s.refs)
	return all
}

// name finds the named structs in a type, and describes each under its name.
func (s *schemas) name(t reflect.Type) error {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return s.name(t.Elem())
	case reflect.Struct:
	default:
		return nil
	}
	if t == reflect.TypeFor[time.Time]() || s.refs[t] != nil {
		return nil
	}
	if _, taken := s.made[t.Name()]; taken {
		return fmt.Errorf("there are two types called %s", t.Name())
	}
	s.refs[t] = &jsonschema.Schema{Ref: "#/components/schemas/" + t.Name()}
	s.made[t.Name()] = nil
	// Its fields, without its name: it may be within itself. What is embedded
	// comes as the fields it has.
	var fields []reflect.StructField
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous || !f.IsExported() {
			continue
		}
		if err := s.name(f.Type); err != nil {
			return err
		}
		fields = append(fields, reflect.StructField{Name: f.Name, Type: f.Type, Tag: f.Tag})
	}
	schema, err := jsonschema.ForType(reflect.StructOf(fields), &jsonschema.ForOptions{TypeSchemas: s.all()})
	if err != nil {
		return fmt.Errorf("%s: %w", t, err)
	}
	// A later gateway may answer more, which a client must not mind.
	schema.AdditionalProperties = nil
	for _, f := range fields {
		if min, ok := least(f); ok {
			schema.Properties[memberName(f)].Minimum = jsonschema.Ptr(float64(min))
		}
	}
	s.made[t.Name()] = notNull(schema)
	return nil
}

// notNull takes null out of a schema, and of what is in it: nothing of ours is
// ever null, for what is not there is left out.
func notNull(s *jsonschema.Schema) *jsonschema.Schema {
	if s == nil {
		return nil
	}
	if len(s.Types) > 0 && s.Types[0] == "null" {
		if s.Types = s.Types[1:]; len(s.Types) == 1 {
			s.Type, s.Types = s.Types[0], nil
		} else if len(s.Types) == 0 {
			s.Types = nil
		}
	}
	for _, p := range s.Properties {
		notNull(p)
	}
	notNull(s.Items)
	notNull(s.AdditionalProperties)
	return s
}
