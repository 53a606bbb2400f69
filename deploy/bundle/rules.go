package bundle

import (
	"fmt"
	"path"
	"strings"
)

// rules are the patterns of the list "dropped".
type rules []string

func (l Lists) rules() (rules, error) {
	var r rules
	err := l.lines("dropped", func(fields []string) error {
		if len(fields) != 1 {
			return fmt.Errorf("want one pattern, got %q", strings.Join(fields, " "))
		}
		if _, err := path.Match(strings.TrimPrefix(fields[0], "!"), ""); err != nil {
			return err
		}
		r = append(r, fields[0])
		return nil
	})
	return r, err
}

// drop reports whether the bundle leaves out a path.
func (r rules) drop(name string) bool {
	dropped := false
	for _, pattern := range r {
		if keep, ok := strings.CutPrefix(pattern, "!"); ok {
			dropped = dropped && !covers(keep, name)
		} else {
			dropped = dropped || covers(pattern, name)
		}
	}
	return dropped
}

// covers reports whether a valid pattern matches a path or a folder that it is in.
func covers(pattern, name string) bool {
	for ; name != "."; name = path.Dir(name) {
		if ok, _ := path.Match(pattern, name); ok {
			return true
		}
	}
	return false
}
