// Package e2e runs the real static binary against real MCP servers and real MCP
// clients, the way their users would. It holds tests only.
//
// The scripts under testdata are testscript archives; what they can't say stands
// in Go beside them. Programs of others come from the folder that setup.sh
// fills; a test that misses one says so, and fails where CI=true.
package e2e
