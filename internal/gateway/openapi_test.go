package gateway_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tine-mcp/tine/internal/gateway"
)

// openAPI is the document as far as it is looked at.
type openAPI struct {
	OpenAPI string `json:"openapi"`
	Info    struct {
		Title, Version string
	} `json:"info"`
	Paths      map[string]map[string]operation `json:"paths"`
	Components struct {
		Schemas         map[string]json.RawMessage `json:"schemas"`
		Responses       map[string]json.RawMessage `json:"responses"`
		SecuritySchemes map[string]struct{ Type, Scheme string }
	} `json:"components"`
	raw        []byte
	patterns   map[string]*regexp.Regexp // of the paths
	validators sync.Map                  // by the text of their schemas
}

type operation struct {
	ID         string `json:"operationId"`
	Summary    string `json:"summary"`
	Parameters []struct {
		Name, In, Description string
		Required              bool
		Schema                json.RawMessage
	} `json:"parameters"`
	Body *struct {
		Required bool
		Content  map[string]struct{ Schema json.RawMessage }
	} `json:"requestBody"`
	Responses map[string]struct {
		Ref         string `json:"$ref"`
		Description string
		Content     map[string]struct{ Schema json.RawMessage }
	} `json:"responses"`
}

// documents are those that were read, by path: every gateway of a test has the same.
var documents sync.Map

func readOpenAPI(t *testing.T, w *world, header ...string) *openAPI {
	t.Helper()
	return readDocument(t, w, "/v1/openapi.json", header...)
}

func readDocument(t *testing.T, w *world, path string, header ...string) *openAPI {
	t.Helper()
	if known, ok := documents.Load(path); ok {
		return known.(*openAPI)
	}
	doc := fetchDocument(t, w, path, header...)
	documents.Store(path, doc)
	return doc
}

func fetchDocument(t *testing.T, w *world, path string, header ...string) *openAPI {
	t.Helper()
	r := w.do(t, "GET", path, "", header...)
	if r.status != http.StatusOK || r.header.Get("Content-Type") != "application/json" {
		t.Fatalf("status %d %s", r.status, r.body)
	}
	doc := &openAPI{raw: r.body, patterns: map[string]*regexp.Regexp{}}
	if err := json.Unmarshal(r.body, doc); err != nil {
		t.Fatal(err)
	}
	for path := range doc.Paths {
		head, rest := path, ""
		if strings.HasSuffix(path, "/{path}") { // which stands for the rest
			head, rest = strings.TrimSuffix(path, "/{path}"), "(/.*)?"
		}
		expr := parameter.ReplaceAllString(regexp.QuoteMeta(head), `[^/]+`) + rest
		doc.patterns[path] = regexp.MustCompile("^" + expr + "$")
	}
	return doc
}

var (
	parameter = regexp.MustCompile(`\\\{[a-z]*\\\}`)
	schemaRef = regexp.MustCompile(`"#/components/schemas/([^"]*)"`)
)

// resolved makes a validator of a schema of the document, once.
func (d *openAPI) resolved(t *testing.T, schema json.RawMessage) *jsonschema.Resolved {
	t.Helper()
	if res, ok := d.validators.Load(string(schema)); ok {
		return res.(*jsonschema.Resolved)
	}
	// The schemas that it refers to, where JSON Schema by itself looks for them.
	defs := map[string]json.RawMessage{}
	for left := []json.RawMessage{schema}; len(left) > 0; left = left[1:] {
		for _, ref := range schemaRef.FindAllSubmatch(left[0], -1) {
			if name := string(ref[1]); defs[name] == nil {
				defs[name] = d.Components.Schemas[name]
				left = append(left, defs[name])
			}
		}
	}
	all, err := json.Marshal(map[string]any{"$defs": defs, "allOf": []json.RawMessage{schema}})
	if err != nil {
		t.Fatal(err)
	}
	all = bytes.ReplaceAll(all, []byte("#/components/schemas/"), []byte("#/$defs/"))
	var s jsonschema.Schema
	if err := json.Unmarshal(all, &s); err != nil {
		t.Fatalf("%v in %s", err, all)
	}
	res, err := s.Resolve(nil)
	if err != nil {
		t.Fatalf("%v in %s", err, all)
	}
	d.validators.Store(string(schema), res)
	return res
}

// operationOf finds the operation of a request.
func (d *openAPI) operationOf(t *testing.T, method, path string) operation {
	t.Helper()
	path, _, _ = strings.Cut(path, "?")
	literal, found := "", operation{}
	for pattern, item := range d.Paths {
		op, ok := item[strings.ToLower(method)]
		if ok && d.patterns[pattern].MatchString(path) && (literal == "" || !strings.Contains(pattern, "{")) {
			literal, found = pattern, op
		}
	}
	if literal == "" {
		t.Fatalf("%s %s is not in the document", method, path)
	}
	return found
}

// check holds an answer against the document: a good one against the schema of
// its media type, a bad one against that of errors.
func (d *openAPI) check(t *testing.T, method, path string, r *reply) {
	t.Helper()
	op := d.operationOf(t, method, path)
	answer, ok := op.Responses[strconv.Itoa(r.status)]
	media := r.header.Get("Content-Type")
	var schema json.RawMessage
	switch {
	case r.status >= 400:
		schema = json.RawMessage(`{"$ref":"#/components/schemas/Error"}`)
	case !ok:
		t.Errorf("%s %s: status %d is not in the document", method, path, r.status)
		return
	default:
		content, ok := answer.Content[media]
		if !ok && r.status != http.StatusNoContent {
			t.Errorf("%s %s: answered %s, and the document has %v", method, path, media, answer.Content)
			return
		}
		schema = content.Schema
	}
	if schema == nil {
		return
	}
	res := d.resolved(t, schema)
	for line := range bytes.Lines(r.body) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var v any
		if err := json.Unmarshal(line, &v); err != nil {
			t.Errorf("%s %s: %v in %s", method, path, err, line)
			return
		}
		if err := res.Validate(v); err != nil {
			t.Errorf("%s %s: %s does not fit: %v", method, path, line, err)
		}
	}
}

func TestOpenAPIDocument(t *testing.T) {
	t.Parallel()
	w := open(t, "servers: {}\n")
	doc := fetchDocument(t, w, "/v1/openapi.json")
	if doc.OpenAPI != "3.1.0" || doc.Info.Title != "Tine" || doc.Info.Version != "1.2.3" {
		t.Errorf("got %s %+v", doc.OpenAPI, doc.Info)
	}
	if s := doc.Components.SecuritySchemes["bearer"]; s.Type != "http" || s.Scheme != "bearer" {
		t.Errorf("security schemes %+v", doc.Components.SecuritySchemes)
	}
	if refs := doc.complete(t, gateway.Operations()); refs < 50 {
		t.Errorf("only %d references", refs)
	}
	var damage struct {
		Properties map[string]struct{ Description string }
	}
	if err := json.Unmarshal(doc.Components.Schemas["Damage"], &damage); err != nil || !strings.Contains(damage.Properties["call"].Description, "last call of the session") {
		t.Errorf("a damage is described as %s, %v", doc.Components.Schemas["Damage"], err)
	}
	// It is made once.
	if again := fetchDocument(t, w, "/v1/openapi.json"); !bytes.Equal(again.raw, doc.raw) {
		t.Error("it is not the same the second time")
	}
}

// complete checks that everything in the table is in the document, and nothing
// else, and that all of it makes sense. It returns how many references it has.
func (doc *openAPI) complete(t *testing.T, inTable map[string]string) int {
	t.Helper()
	inDoc, ids := 0, map[string]bool{}
	for path, item := range doc.Paths {
		for method, op := range item {
			inDoc++
			where := strings.ToUpper(method) + " " + path
			if inTable[where] != op.ID || op.ID == "" || ids[op.ID] || op.Summary == "" {
				t.Errorf("%s is %q in the document, %q in the table, or it is twice there, or it has no summary", where, op.ID, inTable[where])
			}
			ids[op.ID] = true
			if op.Responses["default"].Ref != "#/components/responses/Error" {
				t.Errorf("%s does not say how it fails", where)
			}
			want := 2
			if _, makes := op.Responses["201"]; makes {
				want = 3
			}
			if len(op.Responses) != want {
				t.Errorf("%s has %d answers", where, len(op.Responses))
			}
			inPath := 0
			for _, p := range op.Parameters {
				switch p.In {
				case "path":
					inPath++
					if !p.Required || !strings.Contains(path, "{"+p.Name+"}") {
						t.Errorf("%s: parameter %s is not in the path, or optional", where, p.Name)
					}
				case "query", "header":
					if p.Description == "" || p.Required {
						t.Errorf("%s: parameter %s has no description, or is required", where, p.Name)
					}
				default:
					t.Errorf("%s: parameter %s is in %q", where, p.Name, p.In)
				}
				doc.resolved(t, p.Schema)
			}
			if inPath != strings.Count(path, "{") {
				t.Errorf("%s: %d parameters in the path are described", where, inPath)
			}
			if op.Body != nil {
				for _, c := range op.Body.Content {
					if c.Schema != nil {
						doc.resolved(t, c.Schema)
					}
				}
			}
			for _, r := range op.Responses {
				for _, c := range r.Content {
					if c.Schema != nil {
						doc.resolved(t, c.Schema)
					}
				}
			}
		}
	}
	if inDoc != len(inTable) {
		t.Errorf("%d operations in the document, %d in the table", inDoc, len(inTable))
	}
	// Every reference leads somewhere.
	refs := regexp.MustCompile(`"\$ref":"([^"]*)"`).FindAllSubmatch(doc.raw, -1)
	for _, m := range refs {
		ref := string(m[1])
		schema, isSchema := strings.CutPrefix(ref, "#/components/schemas/")
		response, isResponse := strings.CutPrefix(ref, "#/components/responses/")
		if !(isSchema && doc.Components.Schemas[schema] != nil || isResponse && doc.Components.Responses[response] != nil) {
			t.Errorf("%s leads nowhere", ref)
		}
	}
	for name, schema := range doc.Components.Schemas {
		doc.resolved(t, schema)
		if bytes.Contains(schema, []byte("null")) {
			t.Errorf("%s may be null: %s", name, schema)
		}
	}
	return len(refs)
}

// TestControlRouting checks what is no operation, and what does not belong to
// one.
func TestControlRouting(t *testing.T) {
	t.Parallel()
	w := open(t, "servers: {}\n")
	for _, tt := range []struct {
		method, path string
		status       int
		say          string
		allow        string
	}{
		{"GET", "/v1/nosuch", 404, "openapi.json", ""},
		{"GET", "/v1/sessions/a/b/c", 404, "openapi.json", ""},
		{"GET", "/v1/sessions//forks", 404, "openapi.json", ""},
		{"PUT", "/v1/status", 405, "GET", "GET"},
		{"HEAD", "/v1/status", 405, "", "GET"},
		{"DELETE", "/v1/sessions", 405, "GET, POST", "GET, POST"},
		{"PUT", "/v1/sessions/ses_x", 405, "", "DELETE, GET, PATCH"},
		{"GET", "/v1/sessions/ses_x/rewind", 405, "", "POST"},
		{"PATCH", "/v1/snapshots/import", 405, "", "DELETE, GET, POST"},
		{"GET", "/v1/status?x=1", 400, `"x"`, ""},
		{"GET", "/v1/calls?limit=0", 400, "limit must be a number from 1 to 1000", ""},
		{"GET", "/v1/calls?limit=1001", 400, "limit", ""},
		{"GET", "/v1/calls?limit=1&limit=2", 400, "limit stands more than once", ""},
		{"GET", "/v1/calls?failed=maybe", 400, "failed must be true or false", ""},
		{"GET", "/v1/calls?since=yesterday", 400, "since must be a time", ""},
		{"GET", "/v1/calls?sesion=x", 400, "there are server, session", ""},
		{"GET", "/v1/calls?a=%zz", 400, "query", ""},
		{"POST", "/v1/call?session=x", 400, `"session"`, ""},
		{"GET", "/v1/sessions?label=x", 400, "label must be key=value", ""},
		{"GET", "/v1/snapshots?after=x", 400, "after", ""},
	} {
		r := w.do(t, tt.method, tt.path, "")
		var e struct{ Kind, Message string }
		if tt.method != "HEAD" {
			if err := json.Unmarshal(r.body, &e); err != nil || e.Kind != "invalid" {
				t.Errorf("%s %s: %v, %s", tt.method, tt.path, err, r.body)
			}
		}
		if r.status != tt.status || r.header.Get("Allow") != tt.allow || tt.method != "HEAD" && !strings.Contains(e.Message, tt.say) {
			t.Errorf("%s %s: status %d, Allow %q, %s", tt.method, tt.path, r.status, r.header.Get("Allow"), r.body)
		}
	}
	for _, ok := range []string{"/v1/calls?failed=1&follow=0&server=", "/v1/status/", "/v1/sessions?closed=true&limit=1000", "/v1/snapshots?auto=1"} {
		if r := w.do(t, "GET", ok, ""); r.status != http.StatusOK {
			t.Errorf("%s: status %d %s", ok, r.status, r.body)
		}
	}
}
