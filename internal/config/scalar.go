package config

import (
	"strconv"
	"strings"
	"time"
)

func (o object) boolean(key string, dst *bool) bool {
	n, ok := o.lookup(key)
	if !ok {
		return false
	}
	if n.kind == kindBool || n.from != "" {
		switch strings.ToLower(n.text) {
		case "true":
			*dst = true
			return true
		case "false":
			*dst = false
			return true
		}
	}
	o.wrong(key, n, "got %s, want true or false", n.shown())
	return false
}

func (o object) duration(key string, dst *time.Duration, least, most time.Duration) bool {
	n, ok := o.lookup(key)
	if !ok {
		return false
	}
	if n.kind == kindInt || n.kind == kindFloat {
		o.wrong(key, n, "%s has no unit; write %ss or %sms", n.text, n.text, n.text)
		return false
	}
	v, err := time.ParseDuration(strings.TrimSpace(n.text))
	if n.kind != kindString || err != nil {
		o.wrong(key, n, "%s is not a duration; write it like 500ms, 30s, 5m or 1h30m", n.shown())
		return false
	}
	if v < least || v > most {
		o.wrong(key, n, "%s is out of range; want %s to %s", n.shown(), brief(least), brief(most))
		return false
	}
	*dst = v
	return true
}

// brief writes 1h and not 1h0m0s.
func brief(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func (o object) integer(key string, dst *int, least, most int) bool {
	n, ok := o.lookup(key)
	if !ok {
		return false
	}
	v, err := parseInt(strings.TrimSpace(n.text))
	if err != nil || n.kind != kindInt && n.from == "" {
		o.wrong(key, n, "got %s, want a whole number from %d to %d", n.shown(), least, most)
		return false
	}
	if v < int64(least) || v > int64(most) {
		o.wrong(key, n, "%s is out of range; want %d to %d", n.shown(), least, most)
		return false
	}
	*dst = int(v)
	return true
}

var sizeUnits = map[string]int64{
	"": 1, "b": 1,
	"kb": 1e3, "mb": 1e6, "gb": 1e9,
	"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30,
}

func (o object) size(key string, dst *int64, least, most int64) bool {
	n, ok := o.lookup(key)
	if !ok {
		return false
	}
	v, ok := parseSize(n.text)
	if n.kind != kindInt && n.kind != kindString || !ok {
		o.wrong(key, n, "%s is not a size; write it like 64KiB, 16MiB, 4MB or 65536", n.shown())
		return false
	}
	if v < least || v > most {
		o.wrong(key, n, "%s is out of range; want %s to %s", n.shown(), formatSize(least), formatSize(most))
		return false
	}
	*dst = v
	return true
}

func parseSize(s string) (int64, bool) {
	s = strings.TrimSpace(s)
	digits := strings.TrimRight(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
	unit, ok := sizeUnits[strings.ToLower(strings.TrimSpace(s[len(digits):]))]
	v, err := strconv.ParseInt(strings.ReplaceAll(digits, "_", ""), 10, 64)
	if !ok || err != nil || v < 0 || v > (1<<62)/unit {
		return 0, false
	}
	return v * unit, true
}

func formatSize(n int64) string {
	for _, u := range []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.size && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}
