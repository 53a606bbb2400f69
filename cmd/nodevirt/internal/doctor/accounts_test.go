package doctor

import (
	"errors"
	"os/user"
	"slices"
	"strings"
	"testing"
)

func TestMissingAccounts(t *testing.T) {
	for name, c := range map[string]struct{ users, groups, want string }{
		"Debian":                   {"root libvirt-qemu", "kvm libvirt-qemu", ""},
		"Fedora":                   {"root qemu", "kvm qemu", ""},
		"a user without a group":   {"libvirt-qemu", "kvm", "user and group libvirt-qemu"},
		"parts of two":             {"libvirt-qemu", "kvm qemu", "user and group libvirt-qemu"},
		"without the group kvm":    {"libvirt-qemu", "libvirt-qemu", "group kvm"},
		"before libvirt's package": {"root", "root", "group kvm, user and group libvirt-qemu"},
	} {
		a := accounts{
			user: func(n string) (*user.User, error) {
				if slices.Contains(strings.Fields(c.users), n) {
					return &user.User{Username: n}, nil
				}
				return nil, user.UnknownUserError(n)
			},
			group: func(n string) (*user.Group, error) {
				if slices.Contains(strings.Fields(c.groups), n) {
					return &user.Group{Name: n}, nil
				}
				return nil, errors.New("no such group")
			},
		}
		if got := strings.Join(a.missing(), ", "); got != c.want {
			t.Errorf("%s: missing %q, want %q", name, got, c.want)
		}
	}
}
