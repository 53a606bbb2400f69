package compat

import (
	"errors"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// TestOutline: what belongs to a node is not in the outline, and each part of the guest is.
func TestOutline(t *testing.T) {
	was, err := Outline(own)
	assert.NilError(t, err)
	same := func(old, with string) error {
		t.Helper()
		text := strings.Replace(own, old, with, 1)
		assert.Assert(t, text != own)
		got, err := Outline(text)
		assert.NilError(t, err)
		return SameOutline(got, was)
	}
	emulated := func(cache string) map[string]string {
		t.Helper()
		o, err := Outline(strings.Replace(own, "<os>", `<features><acpi/><tcg><tb-cache unit="MiB">`+cache+"</tb-cache></tcg></features><os>", 1))
		assert.NilError(t, err)
		return o
	}
	assert.NilError(t, SameOutline(emulated("96"), emulated("128")))
	for old, with := range map[string]string{
		"/target/disk": "/other", "tap-target": "tap-2", "<name>vm": "<name>other", "/dev/urandom": "/dev/hwrng",
	} {
		assert.NilError(t, same(old, with))
	}
	for old, with := range map[string]string{
		`bus="virtio"`: `bus="sata"`, "02:00:00:00:00:0A": "02:00:00:00:00:0B", `cores="2"`: `cores="3"`, `"q35"`: `"pc"`,
		`<memballoon model="virtio"></memballoon>`: "", "<controller type=\"usb\"": "<sound model=\"ich9\"/><controller type=\"usb\"",
		"<os>": "<memory unit=\"MiB\">64</memory><os>",
	} {
		if err := same(old, with); !errors.Is(err, ErrShape) {
			t.Errorf("%s is %s: %v", old, with, err)
		}
	}
	assert.ErrorContains(t, same(`bus="virtio"`, `bus="sata"`), "disk/vda is ")
	_, err = Outline("<domain/>")
	assert.ErrorIs(t, err, ErrShape)
}
