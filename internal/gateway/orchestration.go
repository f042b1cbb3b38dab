package gateway

import (
	"net/http"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control/access"
)

// The orchestration API is the one that driver remote speaks, seen from the
// other side: a program that may not run servers by itself asks for instances
// here, and is told where each speaks MCP and with which token.
//
// An instance is a session with one server, so that everything that holds for
// sessions holds for instances: whose they are, forks, snapshots, budgets, what
// comes back after a restart. Labels tell such sessions from others; the control
// API shows them all.
//
//	POST   /instances                 open N sessions, each with the one server
//	GET    /instances                 list them
//	GET    /instances/{id}            one of them
//	DELETE /instances/{id}            close it
//	POST   /instances/{id}/fork       fork it
//	POST   /instances/{id}/snapshot   freeze it
//	POST   /instances/{id}/call       call a tool, without MCP
//	GET    /instances/{id}/tools      list its tools
//	DELETE /snapshots/{id}            delete a snapshot
//	GET    /health, /openapi.json

// orchestrationRoutes is the orchestration API.
func orchestrationRoutes() []action {
	user := api.RoleUser
	return []action{
		{method: get, pattern: "/openapi.json", name: "openAPI", role: user, bound: true, right: access.Freely,
			summary: "This document", operation: op((*Gateway).orchestrationDocument)},
		{method: get, pattern: "/health", name: "health", role: user, bound: true, right: access.Freely,
			summary: "Whether new instances can be had, and whether the token is good", operation: op((*Gateway).health)},

		{method: get, pattern: "/instances", name: "listInstances", role: user, heavy: true,
			summary: "The instances, newest first: the caller's own, or all with the role of a viewer", operation: op((*Gateway).listInstances)},
		{method: post, pattern: "/instances", name: "createInstances", role: user, keyed: true,
			summary: "Make instances of a server, all or none; their tokens are shown this once", operation: op((*Gateway).createInstances)},
		{method: get, pattern: "/instances/{instance}", name: "getInstance", role: user, bound: true, right: access.Freely,
			summary: "One instance; 404 when it is gone", operation: op((*Gateway).getInstance)},
		{method: del, pattern: "/instances/{instance}", name: "deleteInstance", role: user, bound: true, right: api.AllowClose,
			summary: "Remove an instance and all it has. Twice is fine; 404 is one that never was, or is long gone", operation: op((*Gateway).deleteInstance)},
		{method: post, pattern: "/instances/{instance}/fork", name: "forkInstance", role: user, bound: true, right: api.AllowFork, empty: true, keyed: true,
			summary: "Make instances that begin with the state of this one, all or none", operation: op((*Gateway).forkInstance)},
		{method: post, pattern: "/instances/{instance}/snapshot", name: "snapshotInstance", role: user, bound: true, right: api.AllowSnapshot, empty: true, keyed: true,
			summary: "Freeze the state of an instance, for new ones to begin with", operation: op((*Gateway).snapshotInstance)},
		{method: post, pattern: "/instances/{instance}/call", name: "callInstance", role: user, bound: true, right: access.Freely,
			summary: "Call a tool; the answer is the CallToolResult as the server sent it", operation: op((*Gateway).callInstance)},
		{method: get, pattern: "/instances/{instance}/tools", name: "listInstanceTools", role: user, bound: true, right: access.Freely, heavy: true,
			summary: "The tools, as in MCP's ListToolsResult, in one page", operation: op((*Gateway).listInstanceTools)},

		{method: del, pattern: "/snapshots/{snapshot}", name: "deleteSnapshot", role: user,
			summary: "Delete a snapshot; 404 when there is none, or none any more", operation: op((*Gateway).deleteSnapshot)},
	}
}

// orchestrationActions is the orchestration API with its document.
func orchestrationActions(version string) *actions {
	return newActions("Tine orchestration",
		"Instances of MCP servers for programs that don't run them by themselves: made, forked, frozen and removed here, called by MCP at the URL that each has.",
		"", orchestrationRoutes(), version)
}

// orchestrates reports whether a path belongs to the orchestration API.
func orchestrates(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch first {
	case "instances", "snapshots", "health", "openapi.json":
		return true
	}
	return false
}

func (g *Gateway) orchestrationDocument(*ask, none) (rawJSON, error) {
	return g.orchestration.document()
}

// health is for a program that is about to ask for instances: it shows that the
// address is right and the token good. /healthz needs no token.
func (g *Gateway) health(*ask, none) (api.Health, error) {
	if g.draining.Load() {
		return api.Health{}, &api.Error{
			Kind: api.KindRefused, Status: http.StatusServiceUnavailable, Retryable: true, RetryAfter: 1,
			Message: "the gateway is stopping",
		}
	}
	return api.Health{Status: "ok"}, nil
}
