// Package signature reads what a sub-agent is asked for: names and types of what it is
// given and of what it must return, as in
//
//	context, question: str -> answer: str, pages: list[int]
package signature

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// A Signature is what a sub-agent is given and what it must return.
type Signature struct {
	Inputs, Outputs []Field
	// Strategy is how it is advised to go about it; empty for its own way.
	Strategy string
}

// A Field is a value with a name. Its type is in Python's words, and str where it has none.
type Field struct {
	Name string
	Type Type
	// Free is set where the signature has no type: an input can then be anything.
	Free bool
}

// A Type is a type of Python that JSON can hold.
type Type struct {
	Name string // str, int, float, bool, list, dict or Any
	Of   []Type // of the elements of a list, or of the keys and values of a dict
	None bool   // whether None is one, too
}

func (t Type) String() string {
	if t.None {
		t.None = false
		return t.String() + " | None"
	}
	if len(t.Of) == 0 {
		return t.Name
	}
	of := make([]string, len(t.Of))
	for i, e := range t.Of {
		of[i] = e.String()
	}
	return t.Name + "[" + strings.Join(of, ", ") + "]"
}

// String is the signature as it is written.
func (s Signature) String() string {
	side := func(fields []Field) string {
		all := make([]string, len(fields))
		for i, f := range fields {
			if all[i] = f.Name; !f.Free {
				all[i] += ": " + f.Type.String()
			}
		}
		return strings.Join(all, ", ")
	}
	return side(s.Inputs) + " -> " + side(s.Outputs)
}

// takes is how many types stand in the brackets behind a name, and names are others
// that mean the same.
var (
	takes = map[string]int{"str": 0, "int": 0, "float": 0, "bool": 0, "list": 1, "dict": 2, "Any": 0}
	same  = map[string]string{"string": "str", "number": "float", "integer": "int", "boolean": "bool", "array": "list", "object": "dict", "any": "Any", "List": "list", "Dict": "dict"}
)

// reserved are names that no variable can have, or that a sub-agent's code calls.
var reserved = strings.Fields("False None True and as assert async await break class continue def del elif else except " +
	"finally for from global if import in is lambda nonlocal not or pass raise return try while with yield " +
	"SUBMIT llm_query llm_query_batch llm_query_batched print len")

// most bounds a signature: its length, and how many fields it has.
const (
	mostBytes  = 4096
	mostFields = 64
)

// Parse reads a signature, or the name of one that is known.
func Parse(text string) (Signature, error) {
	if known, ok := named[strings.TrimSpace(text)]; ok {
		return known, nil
	}
	if len(text) > mostBytes {
		return Signature{}, fmt.Errorf("the signature has %d bytes; %d are allowed", len(text), mostBytes)
	}
	before, after, ok := strings.Cut(text, "->")
	if !ok {
		return Signature{}, fmt.Errorf("the signature has no ->; write it like %q, or one of %s", "text, question -> answer: str", strings.Join(Names(), ", "))
	}
	var s Signature
	var err error
	if s.Inputs, err = fields(before, "before"); err != nil {
		return s, err
	}
	if s.Outputs, err = fields(after, "after"); err != nil {
		return s, err
	}
	for _, f := range s.Outputs {
		if slices.ContainsFunc(s.Inputs, func(in Field) bool { return in.Name == f.Name }) {
			return s, fmt.Errorf("the signature has %s on both sides of ->; rename one", f.Name)
		}
	}
	return s, nil
}

// Names are those of the signatures that are known.
func Names() []string {
	var names []string
	for name := range named {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func fields(text, side string) ([]Field, error) {
	p := &parser{rest: text}
	var all []Field
	for {
		name := p.word()
		if name == "" {
			return nil, fmt.Errorf("the signature lacks a name %s -> at %q", side, p.shown())
		}
		if slices.Contains(reserved, name) {
			return nil, fmt.Errorf("the signature has the name %s, which has a meaning in Python or in the kernel; choose another", name)
		}
		f := Field{Name: name, Type: Type{Name: "str"}, Free: side == "before"}
		if p.take(':') {
			t, err := p.parseType(0)
			if err != nil {
				return nil, fmt.Errorf("the type of %s: %w", name, err)
			}
			f.Type, f.Free = t, false
		}
		if slices.ContainsFunc(all, func(other Field) bool { return other.Name == f.Name }) {
			return nil, fmt.Errorf("the signature has %s twice", f.Name)
		}
		if all = append(all, f); len(all) > mostFields {
			return nil, fmt.Errorf("the signature has more than %d names %s ->", mostFields, side)
		}
		if !p.take(',') {
			break
		}
	}
	if p.skip(); p.rest != "" {
		return nil, fmt.Errorf("the signature can't be read from %q on; names are separated by commas", p.shown())
	}
	return all, nil
}

// parser reads the words of one side.
type parser struct{ rest string }

func (p *parser) skip() { p.rest = strings.TrimLeftFunc(p.rest, unicode.IsSpace) }

// shown is the beginning of what is left, for an error.
func (p *parser) shown() string {
	p.skip()
	if len(p.rest) > 20 {
		return strings.ToValidUTF8(p.rest[:20], "") + "..."
	}
	return strings.TrimSpace(p.rest)
}

func (p *parser) take(c byte) bool {
	p.skip()
	if p.rest == "" || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

// word takes a name of Python in ASCII; empty where there is none.
func (p *parser) word() string {
	p.skip()
	n := 0
	for n < len(p.rest) {
		c := p.rest[n]
		if c != '_' && (c|0x20 < 'a' || c|0x20 > 'z') && (n == 0 || c < '0' || c > '9') {
			break
		}
		n++
	}
	word := p.rest[:n]
	p.rest = p.rest[n:]
	return word
}

// mostDeep is how deep types may stand in each other.
const mostDeep = 8

// parseType reads a type, as list[int] or str | None.
func (p *parser) parseType(deep int) (Type, error) {
	t, err := p.oneType(deep)
	if err == nil && p.take('|') {
		if at := p.shown(); p.word() != "None" {
			return t, fmt.Errorf("%q stands behind |, where None can stand", at)
		}
		t.None = true
	}
	return t, err
}

func (p *parser) oneType(deep int) (Type, error) {
	at := p.shown()
	name := p.word()
	if other, ok := same[name]; ok {
		name = other
	}
	most, ok := takes[name]
	if !ok {
		return Type{}, fmt.Errorf("%q is none of str, int, float, bool, list, dict and Any", at)
	}
	t := Type{Name: name}
	if !p.take('[') {
		return t, nil
	}
	if deep >= mostDeep {
		return t, fmt.Errorf("it is more than %d types deep", mostDeep)
	}
	for {
		of, err := p.parseType(deep + 1)
		if err != nil {
			return t, err
		}
		if t.Of = append(t.Of, of); !p.take(',') {
			break
		}
	}
	if !p.take(']') {
		return t, fmt.Errorf("a ] is missing behind %s", t)
	}
	if len(t.Of) != most {
		return t, fmt.Errorf("%s takes %d types in brackets, not %d", t.Name, most, len(t.Of))
	}
	if t.Name == "dict" && t.Of[0].String() != "str" {
		return t, fmt.Errorf("the keys of a dict are str, not %s", t.Of[0])
	}
	return t, nil
}
