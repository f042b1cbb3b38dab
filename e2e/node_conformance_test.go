//go:build unix

package e2e

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// notOfTools are the scenarios of the official suite that are not about a server
// that has tools and nothing else, by the reason.
var notOfTools = map[string][]string{
	"node serves no resources": {
		"resources-read-text", "resources-read-binary", "resources-templates-read", "resources-subscribe", "resources-unsubscribe",
	},
	"node serves no prompts": {
		"prompts-get-simple", "prompts-get-with-args", "prompts-get-embedded-resource", "prompts-get-with-image",
		"input-required-result-non-tool-request", // asks in a prompt
	},
	"completion is of arguments of prompts and resource templates": {"completion-complete"},
	"tasks are an extension that the SDK does not have": {
		"tasks-lifecycle", "tasks-capability-negotiation", "tasks-wire-fields", "tasks-request-state-removal", "tasks-mrtr-input", "tasks-request-headers",
		"tasks-dispatch-and-envelope", "tasks-status-notifications", "tasks-required-task-error", "tasks-mrtr-composition",
	},
}

// notOfToolsChecks are the same, of scenarios that are otherwise.
var notOfToolsChecks = map[string]string{
	"server-server-stateless/sep-2575-server-declares-prompts-in-discover": "the SDK lists no prompts instead of knowing no such method",
}

// TestNodeConformance runs the official suite against tools that are nodes, in both
// revisions at the same URL. What does not pass must be listed above, and what is
// listed must not pass.
func TestNodeConformance(t *testing.T) {
	t.Parallel()
	need(t, conformance, node)
	url := serveNode(t, "suite") + "/mcp"
	except := map[string]string{}
	for reason, names := range notOfTools {
		for _, name := range names {
			except["server-"+name] = reason
		}
	}
	unused := map[string]bool{}
	for name := range except {
		unused[name] = true
	}
	for name := range notOfToolsChecks {
		unused[name] = true
	}
	for revision, atLeast := range map[string]int{legacyVersion: 71, modernVersion: 150} {
		t.Run(revision, func(t *testing.T) {
			all := conformServer(t, url, revision)
			passed, failed := all.totals()
			t.Logf("%d passed, %d failed", passed, failed)
			if passed < atLeast {
				t.Errorf("%d checks passed, want at least %d", passed, atLeast)
			}
			for _, name := range slices.Sorted(maps.Keys(all)) {
				scenario := name[:strings.LastIndex(name, "/")]
				switch {
				case all[name][1] == 0:
				case except[scenario] != "":
					delete(unused, scenario)
				case notOfToolsChecks[name] != "":
					delete(unused, name)
				default:
					t.Errorf("%s failed", name)
				}
			}
		})
	}
	delete(unused, "server-tasks-status-notifications") // has no checks
	for name := range unused {
		t.Errorf("%s passes, and is listed as one that can't", name)
	}
}
