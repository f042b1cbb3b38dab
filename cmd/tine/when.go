package main

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// parseSpan reads a length of time: what Go knows, and days and weeks.
func parseSpan(s string) (time.Duration, error) {
	for unit, length := range map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour} {
		number, ok := strings.CutSuffix(s, unit)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(number, 64)
		if err != nil || !(n > -36500 && n < 36500) { // a hundred years; NaN is no number of days either
			return 0, errors.New("it is not a number of days or weeks that makes sense")
		}
		return time.Duration(n * float64(length)), nil
	}
	return time.ParseDuration(s)
}

// parseMoment reads a moment as a program or a person writes it: an RFC 3339
// time, or a day in the place of now.
func parseMoment(s string, now time.Time) (time.Time, bool) {
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, true
	}
	t, err := time.ParseInLocation(time.DateOnly, s, now.Location())
	return t, err == nil
}

// since reads --since: how long ago, or a moment.
func (c *cli) since(s string) (time.Time, error) {
	if t, ok := parseMoment(s, c.now()); ok {
		return t, nil
	}
	d, err := parseSpan(s)
	if err != nil || d <= 0 {
		return time.Time{}, usagef("--since wants how long ago, such as 90m, 1h or 7d, or a time such as 2026-11-15T12:00:00Z, got %q", s)
	}
	return c.now().Add(-d), nil
}

// expires reads --expires: how long from now, or a moment to come.
func (c *cli) expires(s string) (time.Time, error) {
	t, ok := parseMoment(s, c.now())
	if !ok {
		d, err := parseSpan(s)
		if err != nil {
			return time.Time{}, usagef("--expires wants how long from now, such as 12h or 90d, or a time such as 2027-01-31T00:00:00Z, got %q", s)
		}
		t = c.now().Add(d)
	}
	if !t.After(c.now()) {
		return time.Time{}, usagef("--expires %s is in the past; the token would never work", s)
	}
	return t.UTC().Truncate(time.Second), nil
}
