package admission

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// merger adds to a VMI's domain what a preset sets and the VMI does not. What both
// set stays as the VMI has it. As in KubeVirt the merger compares whole parts (the
// cpu, the memory), not the fields in a part: two sockets of one and four cores of
// the other would make a VM that neither requests.
type merger struct {
	// applied says that the VMI has something that the preset sets. Overridden are
	// the parts that the VMI sets to something else.
	applied    bool
	overridden []string
}

// apart reports whether the fields of the object at a path are merged one by one.
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
			own[key], m.applied = storable(given), true
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
			own, m.applied = append(own, storable(given)), true
			continue
		}
		m.compare(at+"["+name+"]", own[have], given)
	}
	return own
}

func (m *merger) compare(at string, said, given any) {
	if reflect.DeepEqual(storable(said), storable(given)) {
		m.applied = true
	} else {
		m.overridden = append(m.overridden, "spec."+at)
	}
}

// isNamed reports whether a value is a list of objects with names. The value in an
// instance may be anything, since no check has seen it yet.
func isNamed(value any) bool {
	list, ok := value.([]any)
	return ok && !slices.ContainsFunc(list, func(v any) bool {
		object, _ := v.(Tree)
		_, named := object["name"].(string)
		return !named
	})
}

// contradictions returns the parts that two presets set to different values.
func contradictions(a, b Tree) string {
	var m merger
	m.merge("domain", storable(a).(Tree), b)
	return strings.Join(m.overridden, ", ")
}
