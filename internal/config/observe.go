package config

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// The variables by which OpenTelemetry is set up everywhere else.
const (
	otlpEndpointVar = "OTEL_EXPORTER_OTLP_ENDPOINT"
	otlpHeadersVar  = "OTEL_EXPORTER_OTLP_HEADERS"
)

func checkCollector(e Object, key string, dst *string) {
	if mend := wrongCollector(*dst); mend != "" && *dst != "" {
		e.Wrong(key, e.Get(key), "%s %s", e.Get(key).Shown(), mend)
	}
}

// wrongCollector says what is wrong with a collector's URL, or nothing.
func wrongCollector(s string) string {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https":
		return "is not an absolute http or https URL; write it like http://127.0.0.1:4318"
	case u.RawQuery != "" || u.Fragment != "":
		return "has a query or a fragment, but paths are added to it; write it like http://127.0.0.1:4318"
	}
	return ""
}

// otlpEnvironment takes from the environment what the file does not say. The
// variables are there for every program, so that one that Tine can't use is no
// reason not to start.
func (d *decoder) otlpEnvironment(c *Config) {
	to := &c.Telemetry.OTLP
	if v, _ := d.opts.Getenv(otlpEndpointVar); !d.otlpEndpoint && strings.TrimSpace(v) != "" {
		v = strings.TrimSpace(v)
		if mend := wrongCollector(v); mend != "" {
			d.warn(Pos{}, "no traces are sent: variable %s %s, or set telemetry.otlp.endpoint", otlpEndpointVar, mend)
		} else {
			to.Endpoint, c.hidden["telemetry.otlp.endpoint"] = v, true
		}
	}
	if v, _ := d.opts.Getenv(otlpHeadersVar); to.Endpoint != "" && !d.otlpHeaders && strings.TrimSpace(v) != "" {
		headers, ok := parseHeaderList(v)
		if !ok {
			d.warn(Pos{}, "variable %s is passed over: want NAME=value pairs with commas between, values percent-encoded; mend it, or set telemetry.otlp.headers", otlpHeadersVar)
			return
		}
		to.Headers = headers
		for name := range headers {
			c.hidden["telemetry.otlp.headers."+name] = true
		}
	}
}

// parseHeaderList reads headers the way OpenTelemetry writes them into one
// variable.
func parseHeaderList(s string) (map[string]string, bool) {
	headers := map[string]string{}
	for _, part := range strings.Split(s, ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		name, value, ok := strings.Cut(part, "=")
		name = strings.TrimSpace(name)
		plain, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil || !headerName.MatchString(name) || strings.ContainsAny(plain, "\r\n\x00") ||
			slices.Contains(ownHeaders, http.CanonicalHeaderKey(name)) {
			return nil, false
		}
		headers[name] = plain
	}
	return headers, true
}
