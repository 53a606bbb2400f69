//go:build cluster

package traces

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// span is a span as OTLP has it in JSON, with the name of its program.
type span struct {
	service string

	TraceID      string `json:"traceId"`
	SpanID       string `json:"spanId"`
	ParentSpanID string `json:"parentSpanId"`
	Name         string `json:"name"`
	Start        uint64 `json:"startTimeUnixNano,string"`
	Attributes   []attribute
	Links        []struct {
		TraceID string `json:"traceId"`
	}
}

type attribute struct {
	Key   string
	Value struct{ StringValue string }
}

func valueOf(all []attribute, key string) string {
	for _, a := range all {
		if a.Key == key {
			return a.Value.StringValue
		}
	}
	return ""
}

// linked reports whether a span is in a trace or linked to it.
func (s span) linked(trace string) bool {
	for _, l := range s.Links {
		if l.TraceID == trace {
			return true
		}
	}
	return s.TraceID == trace
}

// collected are the spans that the collector has got.
type collected struct {
	all  []span
	byID map[string]span
}

// maxLine bounds a batch in the file, in bytes.
const maxLine = 64 << 20

// read reads the collector's file, of which the last line may not be complete.
func read(path string) (c collected, err error) {
	f, err := os.Open(path)
	if err != nil {
		return c, err
	}
	defer f.Close()
	c.byID = map[string]span{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var batch struct {
			ResourceSpans []struct {
				Resource   struct{ Attributes []attribute }
				ScopeSpans []struct{ Spans []span }
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &batch); err != nil {
			continue // it is being written
		}
		for _, r := range batch.ResourceSpans {
			for _, scope := range r.ScopeSpans {
				for _, s := range scope.Spans {
					s.service = valueOf(r.Resource.Attributes, "service.name")
					c.all = append(c.all, s)
					c.byID[s.TraceID+s.SpanID] = s
				}
			}
		}
	}
	return c, lines.Err()
}

// find returns the spans of a program with a name, that have an attribute unless its key is empty.
func (c collected) find(service, name, key, value string) []span {
	var found []span
	for _, s := range c.all {
		if s.service == service && s.Name == name && (key == "" || valueOf(s.Attributes, key) == value) {
			found = append(found, s)
		}
	}
	return found
}

// above returns the span's parents that the collector has got, the nearest first.
func (c collected) above(s span) []span {
	var all []span
	for {
		parent, ok := c.byID[s.TraceID+s.ParentSpanID]
		if !ok || len(all) > 100 {
			return all
		}
		all, s = append(all, parent), parent
	}
}

// within returns the spans below one, and itself.
func (c collected) within(top span) []span {
	var all []span
	for _, s := range c.all {
		if s.SpanID == top.SpanID || slices.ContainsFunc(c.above(s), func(p span) bool { return p.SpanID == top.SpanID }) {
			all = append(all, s)
		}
	}
	return all
}

// tree writes a span and those below it, a line each.
func (c collected) tree(top span) string {
	var b strings.Builder
	var write func(s span, depth int)
	write = func(s span, depth int) {
		fmt.Fprintf(&b, "%s%s: %s\n", strings.Repeat("  ", depth), s.service, s.Name)
		var below []span
		for _, one := range c.all {
			if one.TraceID == s.TraceID && one.ParentSpanID == s.SpanID {
				below = append(below, one)
			}
		}
		slices.SortFunc(below, func(x, y span) int { return int(int64(x.Start) - int64(y.Start)) })
		for _, one := range below {
			write(one, depth+1)
		}
	}
	write(top, 0)
	return b.String()
}
