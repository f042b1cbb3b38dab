package timeserver

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// zone finds a timezone by its IANA name. The names that Go adds ("" and
// "Local") and the parts of the database that are not timezones are refused.
func zone(name string) (*time.Location, error) {
	if name == "" {
		return nil, errors.New("the timezone is empty; give an IANA name")
	}
	if name == "Local" || name == "posixrules" || strings.HasPrefix(name, "posix/") || strings.HasPrefix(name, "right/") {
		return nil, fmt.Errorf("invalid timezone: %q is not an IANA name", name)
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("invalid timezone: %q is not an IANA name", name)
	}
	return loc, nil
}

var clockPattern = regexp.MustCompile(`^(2[0-3]|[01]\d|\d):([0-5]\d|\d)$`)

func parseClock(s string) (hour, minute int, err error) {
	m := clockPattern.FindStringSubmatch(s)
	if m == nil {
		return 0, 0, fmt.Errorf("invalid time %q: want HH:MM on a 24-hour clock", s)
	}
	hour, _ = strconv.Atoi(m[1])
	minute, _ = strconv.Atoi(m[2])
	return hour, minute, nil
}

// wallTime finds the instant at which clocks in loc show what wall shows in
// UTC. When they show it twice it is the first time; when never, it is false.
func wallTime(wall time.Time, loc *time.Location) (time.Time, bool) {
	// A change of offset near the wall time lies between these two, and the one
	// before it is in force when the clocks show the time first.
	for _, probe := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		_, offset := wall.Add(probe).In(loc).Zone()
		t := wall.Add(-time.Duration(offset) * time.Second).In(loc)
		if _, got := t.Zone(); got == offset {
			return t, true
		}
	}
	return time.Time{}, false
}

func moment(name string, t time.Time) Moment {
	return Moment{
		Timezone:  name,
		Datetime:  t.Format("2006-01-02T15:04:05-07:00"),
		DayOfWeek: t.Weekday().String(),
		IsDST:     t.IsDST(),
	}
}

// difference says by how much the target's clock is ahead: "+9.0h", "-3.5h",
// "+5.75h".
func difference(source, target time.Time) string {
	_, a := source.Zone()
	_, b := target.Zone()
	hours := float64(b-a) / 3600
	if hours == float64(int(hours)) {
		return fmt.Sprintf("%+.1fh", hours)
	}
	return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%+.2f", hours), "0"), ".") + "h"
}
