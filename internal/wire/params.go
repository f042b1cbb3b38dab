package wire

import (
	"errors"
	"fmt"
)

// Params are the places in a request's params that Tine may read or replace.
// Spans are relative to Raw.
type Params struct {
	Raw []byte

	// Target names what the request is about, quotes included: params.name for
	// tools and prompts, params.uri for resources, params.ref.name or
	// params.ref.uri for completion.
	Target Span
	// TargetURI tells a ref/resource from a ref/prompt.
	TargetURI bool

	Meta          Span // the _meta object
	NullMeta      Span // a _meta that is null, which some clients send for none
	ProgressToken Span
	Version       Span
	ClientInfo    Span
	ClientCaps    Span
	LogLevel      Span

	RequestState   Span
	InputResponses Span
}

// Name decodes Target.
func (p *Params) Name() string {
	s, _ := Unquote(p.Target.Of(p.Raw))
	return s
}

// HasTarget reports whether a method's params name a tool, prompt or resource.
func HasTarget(method string) bool {
	switch method {
	case MethodCallTool, MethodGetPrompt, MethodReadResource, MethodSubscribe, MethodUnsubscribe, MethodComplete:
		return true
	}
	return false
}

// ScanParams finds the places of interest in the params of a request. It
// refuses a key that differs from one of interest only in case: Go's own JSON
// decoder, and so many a server, would take the one for the other, and call a
// tool that Tine did not look at.
func ScanParams(method string, raw []byte) (Params, error) {
	p := Params{Raw: raw}
	if len(raw) == 0 {
		return p, nil
	}
	target := ""
	switch method {
	case MethodCallTool, MethodGetPrompt:
		target = "name"
	case MethodReadResource, MethodSubscribe, MethodUnsubscribe:
		target, p.TargetURI = "uri", true
	case MethodComplete:
		target = "ref"
	}
	m := members{b: raw, strict: true}
	for m.next() {
		switch {
		case target != "" && m.is(target):
			m.set(&p.Target, target)
		case m.is("_meta"):
			m.set(&p.Meta, "_meta")
		case m.is("requestState"):
			m.set(&p.RequestState, "requestState")
		case m.is("inputResponses"):
			m.set(&p.InputResponses, "inputResponses")
		}
		if m.err != nil {
			return p, m.err
		}
	}
	if m.err != nil {
		return p, m.err
	}
	if p.Meta.Ok() {
		if err := p.scanMeta(); err != nil {
			return p, err
		}
	}
	if target == "ref" && p.Target.Ok() {
		if err := p.scanRef(); err != nil {
			return p, err
		}
	}
	if p.Target.Ok() && raw[p.Target.Start] != '"' {
		return p, fmt.Errorf("params.%s must be a string", target)
	}
	return p, nil
}

func (p *Params) scanMeta() error {
	if p.Raw[p.Meta.Start] != '{' {
		if string(p.Meta.Of(p.Raw)) == "null" {
			p.Meta, p.NullMeta = Span{}, p.Meta
			return nil
		}
		return errors.New("params._meta must be an object")
	}
	m := members{b: p.Raw[:p.Meta.End], i: p.Meta.Start, strict: true}
	for m.next() {
		switch {
		case m.is(MetaProgressToken):
			m.set(&p.ProgressToken, MetaProgressToken)
		case m.is(MetaVersion):
			m.set(&p.Version, MetaVersion)
		case m.is(MetaClientInfo):
			m.set(&p.ClientInfo, MetaClientInfo)
		case m.is(MetaClientCaps):
			m.set(&p.ClientCaps, MetaClientCaps)
		case m.is(MetaLogLevel):
			m.set(&p.LogLevel, MetaLogLevel)
		}
		if m.err != nil {
			return m.err
		}
	}
	return m.err
}

func (p *Params) scanRef() error {
	if p.Raw[p.Target.Start] != '{' {
		return errors.New("params.ref must be an object")
	}
	var kind, name, uri Span
	m := members{b: p.Raw[:p.Target.End], i: p.Target.Start, strict: true}
	for m.next() {
		switch {
		case m.is("type"):
			m.set(&kind, "type")
		case m.is("name"):
			m.set(&name, "name")
		case m.is("uri"):
			m.set(&uri, "uri")
		}
		if m.err != nil {
			return m.err
		}
	}
	if m.err != nil {
		return m.err
	}
	switch s, _ := Unquote(kind.Of(p.Raw)); s {
	case "ref/prompt":
		p.Target = name
	case "ref/resource":
		p.Target, p.TargetURI = uri, true
	default:
		return errors.New("params.ref.type must be ref/prompt or ref/resource")
	}
	return nil
}
