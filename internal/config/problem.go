package config

import (
	"fmt"
	"sort"
	"strings"
)

// Bounds of one report: past this many a reader wants to mend first.
const (
	maxProblems = 20
	maxWarnings = 100
)

// Pos is a place in a file. Lines and columns count from one; a column counts
// characters, not bytes. The zero pos is "somewhere in the file".
type Pos struct{ Line, Col int }

// Problem is one thing that is wrong in a config, and where. What is set at run
// time stands in no file.
type Problem struct {
	File    string
	Line    int
	Column  int
	Message string
}

func (p Problem) String() string {
	switch {
	case p.File == "":
		return p.Message
	case p.Line == 0:
		return p.File + ": " + p.Message
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Message)
}

// Error is everything that is wrong in a config, in the order of the file. More
// counts what was found beyond the first twenty.
type Error struct {
	Problems []Problem
	More     int
}

func (e *Error) Error() string {
	lines := make([]string, 0, len(e.Problems)+1)
	for _, p := range e.Problems {
		lines = append(lines, p.String())
	}
	if e.More > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", e.More))
	}
	return strings.Join(lines, "\n")
}

// report collects problems and warnings about one file.
type report struct {
	file     string
	problems []Problem
	warnings []string
}

func (r *report) fail(at Pos, format string, args ...any) {
	r.problems = append(r.problems, Problem{
		File: r.file, Line: at.Line, Column: at.Col, Message: fmt.Sprintf(format, args...),
	})
}

func (r *report) warn(at Pos, format string, args ...any) {
	p := Problem{File: r.file, Line: at.Line, Column: at.Col, Message: fmt.Sprintf(format, args...)}
	r.warnings = append(r.warnings, p.String())
}

// err is nil when nothing is wrong.
func (r *report) err() error {
	if len(r.problems) == 0 {
		return nil
	}
	// Keys are read in the order the code wants them; people want the order of
	// the file.
	sort.SliceStable(r.problems, func(i, j int) bool {
		a, b := r.problems[i], r.problems[j]
		if a.Line != b.Line {
			return a.Line < b.Line
		}
		return a.Column < b.Column
	})
	return bounded(r.problems)
}

func bounded(ps []Problem) *Error {
	e := &Error{Problems: ps}
	if len(ps) > maxProblems {
		e.Problems, e.More = ps[:maxProblems], len(ps)-maxProblems
	}
	return e
}

func (r *report) boundedWarnings() []string {
	if more := len(r.warnings) - maxWarnings; more > 0 {
		return append(r.warnings[:maxWarnings:maxWarnings], fmt.Sprintf("and %d more warnings", more))
	}
	return r.warnings
}
