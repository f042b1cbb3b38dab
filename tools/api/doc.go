// Package api has the exported names of package node as they were accepted, in
// node.txt, and a test that says when they change.
package api
