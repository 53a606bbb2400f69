package compat

import (
	"fmt"

	"libvirt.org/go/libvirtxml"
)

// maxName bounds the name of a domain, in bytes.
const maxName = 255

// Rename returns a domain with another name; with an empty one, it stays as it is.
// libvirt compares the names of both ends, which have a name of the container each.
func Rename(text, name string) (string, error) {
	if name == "" {
		return text, nil
	}
	if len(name) > maxName {
		return "", fmt.Errorf("%w: its name has %d bytes", ErrShape, len(name))
	}
	var d libvirtxml.Domain
	if err := d.Unmarshal(text); err != nil {
		return "", fmt.Errorf("read the target's domain: %w", err)
	}
	d.Name = name
	return d.Marshal()
}
