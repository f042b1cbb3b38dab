package config

import (
	"fmt"
	"slices"
)

// wayKeys are the keys of which one says what a server is.
var wayKeys = []string{"command", "url", "builtin", "preset"}

// giveOne names them.
func giveOne() string {
	all := make([]string, len(wayKeys))
	for i, key := range wayKeys {
		all[i] = an(key)
	}
	return "give it " + OrList(all)
}

// goesWith says what is wrong with a key beside a way; empty when it is right.
func goesWith(key, way string) string {
	var need []string
	if i := slices.Index(serverTable.Names(), key); i >= 0 {
		need = serverTable[i].beside
	}
	if len(need) == 0 || slices.Contains(need, way) {
		return ""
	}
	msg := fmt.Sprintf("goes with %s, but this server has %s", OrList(need), an(way))
	kind := kindOf(way)
	if kind != nil && kind.Elsewhere[key] != "" {
		return msg + "; that is " + kind.Elsewhere[key]
	}
	if key == "state" && way != "builtin" {
		msg += "; write state: none if it remembers nothing"
	}
	if k := kindOf(key); k != nil && k.Around != "" {
		msg += "; give it " + an(k.Around) + ", or remove this"
	}
	return msg
}

// an is a way with its article.
func an(way string) string {
	if kindOf(way) != nil {
		return way
	}
	return "a " + way
}

// Has is the first of some keys that is there.
func (o Object) Has(keys ...string) string {
	for _, key := range keys {
		if o.n.Get(key) != nil {
			return key
		}
	}
	return ""
}

// what reads how the server is run or reached: in exactly one way.
func (d *decoder) what(o Object, s *Server, idPos Pos) {
	d.command(o, s)
	d.settings(o, s)
	off := map[string]bool{} // kinds whose key says that there is none
	for _, k := range kinds {
		options := k.read(o, s)
		if options != nil && s.Options == nil {
			s.Options, s.kind = options, k
		}
		off[k.Name] = options == nil
	}
	if o.n.Get("preset") != nil && s.Preset == "" {
		return // one that could not be had, which was reported
	}
	var given []string
	for _, key := range wayKeys {
		if o.n.Get(key) != nil {
			given = append(given, key)
		}
	}
	if len(given) == 2 && given[1] == "preset" {
		given = given[:1] // what the preset is made of
	}
	switch len(given) {
	case 0:
		for _, k := range kinds {
			if k.Around != "" && o.n.Get(k.Name) != nil {
				d.fail(o.KeyPos(k.Name), "%s.%s: %s is missing; %s", o.Path, k.Name, k.Around, k.AroundMend)
				return
			}
		}
		// Beside an unknown key it would only repeat that one's report.
		if !o.HasUnknown(serverTable.Names()) {
			d.fail(idPos, "%s: nothing to run or reach; %s", o.Path, giveOne())
		}
		return
	case 1:
	default:
		d.fail(o.KeyPos(given[1]), "%s: %s and %s exclude each other; keep one", o.Path, given[0], given[1])
		return
	}
	for _, p := range o.n.Pairs {
		if off[p.Key] || p.Key == "settings" && s.Front != "" {
			continue
		}
		if p.Key == "state" && saysNone(p.Value) && given[0] != "builtin" {
			continue // none goes with whatever is run or reached
		}
		if wrong := goesWith(p.Key, given[0]); wrong != "" {
			d.fail(p.KeyPos, "%s.%s: %s", o.Path, p.Key, wrong)
		}
	}
	d.driver(o, s, given[0])
}

// driverOf is the driver of what has a way.
func driverOf(way string) string {
	if way == "command" {
		return "process"
	}
	return way
}

func (d *decoder) driver(o Object, s *Server, given string) {
	if s.kind != nil && s.kind.Around == given {
		given = s.kind.Name
	}
	fits := driverOf(given)
	if s.Driver = fits; !o.OneOf("driver", &s.Driver, drivers...) {
		return
	}
	if s.Driver != fits {
		n := o.n.Get("driver")
		o.Wrong("driver", n, "%s does not go with %s; write driver: %s, or leave it out", n.Shown(), given, fits)
	}
}
