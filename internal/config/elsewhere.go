package config

import (
	"slices"
	"strings"
)

// mostPlaces is how many places are named for a key that stands in the wrong one.
const mostPlaces = 3

// elsewhere says where in a server's entry a key belongs that is unknown in a map of
// the file; empty where no table of an entry has it, or too many have.
func (d *decoder) elsewhere(key, path string, n *Node) string {
	keys := d.entryKeys
	top := slices.ContainsFunc(keys, func(k About) bool { return k.Name == key })
	entry, inServer := entryPath(path, keys)
	switch {
	case path == "" && top:
		return join("servers.NAME", key)
	case !inServer:
		return ""
	case path != entry && top:
		return join(entry, key)
	}
	// A key of the entry's own maps is meant, if one of them has it; below a map what
	// another map has means something else.
	all := placesOf(key, "", keys)
	within, _, _ := strings.Cut(strings.TrimPrefix(path[len(entry):], "."), ".")
	given := slices.DeleteFunc(slices.Clone(all), func(place string) bool {
		first, _, _ := strings.Cut(place, ".")
		return within != "" && first != within || within == "" && n.Get(first) == nil
	})
	if len(given) > 0 || within != "" {
		all = given
	}
	if len(all) == 0 || len(all) > mostPlaces {
		return ""
	}
	for i := range all {
		all[i] = join(entry, all[i])
	}
	return OrList(all)
}

// entryPath is the path of the entry that a path lies in, or is.
func entryPath(path string, keys []About) (string, bool) {
	id, ok := strings.CutPrefix(path, "servers.")
	if !ok {
		return "", false
	}
	for i, c := range id {
		if c != '.' || i == 0 {
			continue
		}
		first, _, _ := strings.Cut(id[i+1:], ".")
		first, _, _ = strings.Cut(first, "[")
		if slices.ContainsFunc(keys, func(k About) bool { return k.Name == first }) {
			return "servers." + id[:i], true
		}
	}
	return path, true
}

// placesOf are the maps below an entry that have a key, with it.
func placesOf(key, under string, keys []About) []string {
	var list []string
	for _, k := range keys {
		if under != "" && k.Name == key {
			list = append(list, join(under, key))
		}
		list = append(list, placesOf(key, join(under, k.Name), k.Keys)...)
	}
	return list
}
