package config

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

func (o Object) Boolean(key string, dst *bool) bool {
	n, ok := o.Lookup(key)
	if !ok {
		return false
	}
	if n.Shape == ShapeBool || n.From != "" {
		switch strings.ToLower(n.Text) {
		case "true":
			*dst = true
			return true
		case "false":
			*dst = false
			return true
		}
	}
	o.Wrong(key, n, "got %s, want true or false", n.Shown())
	return false
}

func (o Object) Duration(key string, dst *time.Duration, least, most time.Duration) bool {
	n, ok := o.Lookup(key)
	if !ok {
		return false
	}
	// Zero is the same in every unit.
	if (n.Shape == ShapeInt || n.Shape == ShapeFloat) && n.Text != "0" {
		o.Wrong(key, n, "%s has no unit; write %ss or %sms", n.Text, n.Text, n.Text)
		return false
	}
	v, ok := parseDuration(n.Text)
	if n.Shape != ShapeString && n.Shape != ShapeInt || !ok {
		o.Wrong(key, n, "%s is not a duration; write it like 500ms, 30s, 5m, 1h30m or 7d", n.Shown())
		return false
	}
	if v < least || v > most {
		o.Wrong(key, n, "%s is out of range; want %s to %s", n.Shown(), Brief(least), Brief(most))
		return false
	}
	*dst = v
	return true
}

var wholeDays = regexp.MustCompile(`^([0-9]{1,6})d(.*)$`)

// parseDuration reads what Go reads, and days in front of it: 7d, 1d12h.
func parseDuration(s string) (time.Duration, bool) {
	s = strings.TrimSpace(s)
	m := wholeDays.FindStringSubmatch(s)
	if m == nil {
		d, err := time.ParseDuration(s)
		return d, err == nil
	}
	days, err := strconv.Atoi(m[1])
	if err != nil || days > int(math.MaxInt64/day) {
		return 0, false
	}
	rest := time.Duration(0)
	if m[2] != "" {
		if rest, err = time.ParseDuration(m[2]); err != nil || m[2][0] == '-' || m[2][0] == '+' {
			return 0, false
		}
	}
	d := time.Duration(days)*day + rest
	return d, d >= 0
}

const day = 24 * time.Hour

// Brief writes 1h and not 1h0m0s, and whole days as such.
func Brief(d time.Duration) string {
	if d >= day && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func (o Object) Integer(key string, dst *int, least, most int) bool {
	n, ok := o.Lookup(key)
	if !ok {
		return false
	}
	v, err := parseInt(strings.TrimSpace(n.Text))
	if err != nil || n.Shape != ShapeInt && n.From == "" {
		o.Wrong(key, n, "got %s, want a whole number from %d to %d", n.Shown(), least, most)
		return false
	}
	if v < int64(least) || v > int64(most) {
		o.Wrong(key, n, "%s is out of range; want %d to %d", n.Shown(), least, most)
		return false
	}
	*dst = int(v)
	return true
}

// Number accepts a whole number or one with a fraction.
func (o Object) Number(key string, dst *float64, least, most float64) bool {
	n, ok := o.Lookup(key)
	if !ok {
		return false
	}
	v, ok := n.float()
	if !ok || n.Shape != ShapeInt && n.Shape != ShapeFloat && n.From == "" {
		o.Wrong(key, n, "got %s, want a number from %s to %s", n.Shown(), formatNumber(least), formatNumber(most))
		return false
	}
	if math.IsNaN(v) || v < least || v > most {
		o.Wrong(key, n, "%s is out of range; want %s to %s", n.Shown(), formatNumber(least), formatNumber(most))
		return false
	}
	*dst = v
	return true
}

func (n *Node) float() (float64, bool) {
	text := strings.TrimSpace(n.Text)
	if i, err := parseInt(text); err == nil {
		return float64(i), true
	}
	f, ok := parseFloat(text).(float64)
	return f, ok
}

func formatNumber(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

var sizeUnits = map[string]int64{
	"": 1, "b": 1,
	"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
	"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}

func (o Object) Size(key string, dst *int64, least, most int64) bool {
	n, ok := o.Lookup(key)
	if !ok {
		return false
	}
	v, ok := parseSize(n.Text)
	if n.Shape != ShapeInt && n.Shape != ShapeString || !ok {
		o.Wrong(key, n, "%s is not a size; write it like 64KiB, 16MiB, 4MB or 65536", n.Shown())
		return false
	}
	if v < least || v > most {
		o.Wrong(key, n, "%s is out of range; want %s to %s", n.Shown(), FormatSize(least), FormatSize(most))
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

func FormatSize(n int64) string {
	for _, u := range []struct {
		name string
		size int64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.size && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}
