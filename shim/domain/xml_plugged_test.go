package domain

import (
	"errors"
	"testing"
)

// pluggedDomain has a network card on a tap that a network binding plug-in made. Its domain has the name of a tap that
// libvirt opens, in whose place QEMU's program puts the other.
func pluggedDomain() Description {
	m := plainDomain()
	m.Emulator = "/run/nodevirt/emulators/0123456789abcdef/nodevirt-qemu"
	m.TapSocket = "/run/vm/a.taps"
	return m
}

// TestTapsNeedTheProgram: QEMU itself, which libvirt starts with vm.landlock off, would have the wrong tap.
func TestTapsNeedTheProgram(t *testing.T) {
	m := pluggedDomain()
	m.Emulator = plainDomain().Emulator
	if _, err := XML(m); !errors.Is(err, ErrUnsupported) {
		t.Error(err)
	}
}
