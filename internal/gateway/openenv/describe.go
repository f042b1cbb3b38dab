package openenv

import (
	_ "embed"
	"encoding/json"
	"strings"
)

// metadata is what an environment says of itself.
type metadata struct {
	Name        string  `json:"name"`
	Description string  `json:"description"`
	Readme      *string `json:"readme_content"`
	Version     string  `json:"version"`
	Author      *string `json:"author"`
	Docs        *string `json:"documentation_url"`
}

// wireVersion is the version of the HTTP API that clients read.
const wireVersion = "1.0.0"

func metadataOf(env Environment) metadata {
	m := metadata{Name: env.Name, Description: env.Description, Version: wireVersion}
	switch {
	case m.Description != "":
	case len(env.Servers) > 0:
		m.Description = "The tools of " + strings.Join(env.Servers, ", ")
	default:
		m.Description = "The tools of all servers of the gateway"
	}
	return m
}

//go:embed schema.json
var schemaJSON []byte

//go:embed openapi.json
var openapiJSON []byte

// schemas describe actions, observations and the state. They are the same for all
// environments: what tools there are is asked for with list_tools.
var schemas = json.RawMessage(schemaJSON)

// document is the description of the HTTP API of an environment.
func document(env Environment) any {
	var doc map[string]any
	if err := json.Unmarshal(openapiJSON, &doc); err != nil {
		panic(err) // a test reads it
	}
	doc["info"] = map[string]string{"title": "OpenEnv environment " + env.Name, "version": wireVersion, "description": metadataOf(env).Description}
	doc["servers"] = []map[string]string{{"url": Prefix + env.Name}}
	return doc
}
