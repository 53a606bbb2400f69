package admission

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// merger gives a machine's domain what a preset says and the machine doesn't. What
// both say stays as the machine has it. As with KubeVirt that is decided part by
// part (the cpu, the memory) and not field by field within one: two sockets of the
// one and four cores of the other would be a machine that neither asked for.
type merger struct {
	// applied says that the machine has something that the preset says, overridden
	// are the parts that it has otherwise.
	applied    bool
	overridden []string
}

// apart tells of an object whether its fields are parts of their own.
func apart(path string) bool {
	switch path {
	case "domain", "domain.devices", "domain.firmware", "domain.resources",
		"domain.resources.requests", "domain.resources.limits":
		return true
	}
	return false
}

// merge changes own, which is the object at a path, and not theirs.
func (m *merger) merge(path string, own, theirs Tree) {
	for _, key := range slices.Sorted(maps.Keys(theirs)) {
		at, said, given := path+"."+key, own[key], theirs[key]
		part, isObject := given.(Tree)
		switch {
		case given == nil, isObject && len(part) == 0 && apart(at):
		case isObject && apart(at):
			if into, ok := said.(Tree); ok {
				m.merge(at, into, part)
			} else if said == nil {
				m.merge(at, Child(own, key), part)
			}
		case said == nil:
			own[key], m.applied = withoutNulls(given), true
		case isNamed(said) && isNamed(given):
			own[key] = m.mergeNamed(at, said.([]any), given.([]any))
		default:
			m.compare(at, said, given)
		}
	}
}

// mergeNamed adds to a list of disks or interfaces those of other names.
func (m *merger) mergeNamed(at string, own, theirs []any) []any {
	for _, given := range theirs {
		name := given.(Tree)["name"].(string)
		have := slices.IndexFunc(own, func(said any) bool { return said.(Tree)["name"] == name })
		if have < 0 {
			own, m.applied = append(own, withoutNulls(given)), true
			continue
		}
		m.compare(at+"["+name+"]", own[have], given)
	}
	return own
}

func (m *merger) compare(at string, said, given any) {
	if reflect.DeepEqual(withoutNulls(said), withoutNulls(given)) {
		m.applied = true
	} else {
		m.overridden = append(m.overridden, "spec."+at)
	}
}

// isNamed tells whether a value is a list of objects with names. An instance's may
// be anything: it has not been checked yet.
func isNamed(value any) bool {
	list, ok := value.([]any)
	return ok && !slices.ContainsFunc(list, func(v any) bool {
		object, _ := v.(Tree)
		_, named := object["name"].(string)
		return !named
	})
}

// contradictions are the parts of which two presets say different things.
func contradictions(a, b Tree) string {
	var m merger
	m.merge("domain", withoutNulls(a).(Tree), b)
	return strings.Join(m.overridden, ", ")
}
