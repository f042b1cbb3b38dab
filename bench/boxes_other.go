//go:build !linux

package main

import "errors"

// There are no sandboxes elsewhere, and nobody asks.
type (
	boxRecord struct{}
	tree      map[int][]int
)

var errNoBoxes = errors.ErrUnsupported

func boxRecords(string, string) ([]boxRecord, error)     { return nil, errNoBoxes }
func processRecords(string, string) ([]boxRecord, error) { return nil, errNoBoxes }
func recordOf(int) boxRecord                             { return boxRecord{} }
func descendants() (tree, error)                         { return nil, errNoBoxes }
func (tree) below(int) []int                             { return nil }
func (boxRecord) processes(tree) []int                   { return nil }
func (boxRecord) held(tree) (holding, error)             { return holding{}, errNoBoxes }
func memoryFree() int64                                  { return 0 }
func sweepBoxes(string) []string                         { return nil }
