// Package domainxml checks what a hook has made of a domain's XML.
//
// It owns the list of what a hook may change: what the guest sees, and nothing that
// names a file, a socket, a device or a network of the node. It knows no connection.
package domainxml

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// rule checks the elements of one name within one parent, as they were and as they are.
type rule func(were, are []*element) error

// changeable returns what a hook may add, change and remove, by the path below domain.
func changeable() map[string]rule {
	return map[string]rule{
		"title":               free,
		"description":         free,
		"sysinfo":             smbiosOnly,
		"os/smbios":           noHostSMBIOS,
		"features":            free,
		"cpu":                 sameNUMA,
		"clock":               free,
		"devices/disk/iotune": free,
	}
}

// Changeable returns the paths of what a hook may change, sorted.
func Changeable() []string { return slices.Sorted(maps.Keys(changeable())) }

// ChangedError is a change that a hook may not make.
type ChangedError struct {
	// Path is that of the element or attribute below domain.
	Path string
	// Why says which rule it breaks.
	Why string
}

func (e *ChangedError) Error() string {
	return fmt.Sprintf("%s: %s; a hook may change only %s", e.Path, e.Why, strings.Join(Changeable(), ", "))
}

// Check returns the domain as the hook made it, encoded again. It returns a
// [ChangedError] if the hook changed more than it may.
func Check(was, is string) (string, error) {
	from, err := parse(was)
	if err != nil {
		return "", fmt.Errorf("parse the domain: %w", err)
	}
	to, err := parse(is)
	if err != nil {
		return "", fmt.Errorf("parse the hook's domain: %w", err)
	}
	if err := (checker{changeable()}).same("", from, to); err != nil {
		return "", err
	}
	return to.String(), nil
}

type checker struct{ rules map[string]rule }

// same compares two elements at a path, except for what may differ.
func (c checker) same(at string, a, b *element) error {
	if a.name != b.name {
		return &ChangedError{join(at, "."), fmt.Sprintf("element %.40q in place of %q", b.name.Local, a.name.Local)}
	}
	for _, name := range slices.Sorted(maps.Keys(union(a.attrs, b.attrs))) {
		was, had := a.attrs[name]
		is, has := b.attrs[name]
		if was != is || had != has {
			return &ChangedError{join(at, "@"+name), changed(had, has)}
		}
	}
	if a.text != b.text {
		return &ChangedError{join(at, "."), "its text was changed"}
	}
	for _, name := range c.changeableIn(at) {
		if err := c.check(join(at, name), a.named(name), b.named(name)); err != nil {
			return err
		}
	}
	return c.sameChildren(at, c.fixed(at, a), c.fixed(at, b))
}

// sameChildren compares the children that may not be added, removed or moved.
func (c checker) sameChildren(at string, a, b []*element) error {
	seen := map[string]int{}
	for i := range max(len(a), len(b)) {
		if i >= len(b) {
			return &ChangedError{join(at, numbered(seen, a[i])), changed(true, false)}
		}
		path := join(at, numbered(seen, b[i]))
		if i >= len(a) {
			return &ChangedError{path, changed(false, true)}
		}
		if a[i].name != b[i].name {
			return &ChangedError{path, fmt.Sprintf("added, moved, or in place of %q", a[i].name.Local)}
		}
		if err := c.same(path, a[i], b[i]); err != nil {
			return err
		}
	}
	return nil
}

// check applies a rule.
func (c checker) check(path string, were, are []*element) error {
	err := plain(are)
	if err == nil {
		err = c.rules[unnumbered(path)](were, are)
	}
	if err != nil {
		return &ChangedError{path, err.Error()}
	}
	return nil
}

// changeableIn returns the names of the children of an element that a hook may change.
func (c checker) changeableIn(at string) []string {
	var names []string
	for path := range c.rules {
		parent, name := "", path
		if cut := strings.LastIndexByte(path, '/'); cut >= 0 {
			parent, name = path[:cut], path[cut+1:]
		}
		if parent == unnumbered(at) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// fixed returns the children of an element that a hook may not change.
func (c checker) fixed(at string, e *element) []*element {
	var all []*element
	for _, child := range e.children {
		if _, may := c.rules[unnumbered(join(at, child.name.Local))]; !may || child.name.Space != "" {
			all = append(all, child)
		}
	}
	return all
}

// named returns the children of a name in no namespace.
func (e *element) named(name string) []*element {
	var all []*element
	for _, child := range e.children {
		if child.name.Local == name && child.name.Space == "" {
			all = append(all, child)
		}
	}
	return all
}

func changed(had, has bool) string {
	switch {
	case !had:
		return "was added"
	case !has:
		return "was removed"
	}
	return "was changed"
}

func union(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "/" + name
}

// numbered names a child, and from the second one of its name on which it is.
func numbered(seen map[string]int, e *element) string {
	name := fmt.Sprintf("%.40s", e.name.Local)
	seen[name]++
	if n := seen[name]; n > 1 {
		return fmt.Sprintf("%s[%d]", name, n)
	}
	return name
}

// unnumbered removes the numbers of a path.
func unnumbered(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		parts[i], _, _ = strings.Cut(p, "[")
	}
	return strings.Join(parts, "/")
}

// plain refuses elements of other namespaces, such as QEMU's options.
func plain(all []*element) error {
	for _, e := range all {
		if e.name.Space != "" {
			return fmt.Errorf("element %.40q has a namespace", e.name.Local)
		}
		if err := plain(e.children); err != nil {
			return err
		}
	}
	return nil
}

func free(_, _ []*element) error { return nil }

// smbiosOnly refuses the kind of sysinfo that reads files of the node, but for what was there.
func smbiosOnly(were, are []*element) error {
	for _, e := range are {
		same := func(was *element) bool { return was.String() == e.String() }
		if e.attrs["type"] != "smbios" && !slices.ContainsFunc(were, same) {
			return fmt.Errorf("the type %.40q is not smbios", e.attrs["type"])
		}
	}
	return nil
}

// noHostSMBIOS refuses the mode that shows the guest the node's serial numbers.
func noHostSMBIOS(_, are []*element) error {
	for _, e := range are {
		if mode := e.attrs["mode"]; mode != "sysinfo" && mode != "emulate" {
			return fmt.Errorf("the mode %.40q is neither sysinfo nor emulate", mode)
		}
	}
	return nil
}

// sameNUMA refuses changes of the guest's NUMA nodes, which place its memory on the node.
func sameNUMA(were, are []*element) error {
	numa := func(all []*element) []*element {
		var found []*element
		for _, e := range all {
			found = append(found, e.named("numa")...)
		}
		return found
	}
	if !slices.EqualFunc(numa(were), numa(are), func(a, b *element) bool { return a.String() == b.String() }) {
		return errors.New("numa was changed")
	}
	return nil
}
