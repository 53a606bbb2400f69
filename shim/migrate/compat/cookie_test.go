package compat

import (
	"errors"
	"strings"
	"testing"
)

const (
	testVM     = "7d1c0f5a-6d5e-4d0e-8a4c-2f9d1b6a0001"
	goodCookie = "<qemu-migration>\n  <name>vm</name>\n  <uuid>" + testVM + "</uuid>\n  <hostname>n1</hostname>\n" +
		"  <feature name='lockstate'/>\n  <nbd port='0'><disk target='vda' capacity='1'/></nbd>\n</qemu-migration>\n\x00"
)

func TestCheckCookie(t *testing.T) {
	for _, good := range []string{"", goodCookie} {
		if err := CheckCookie([]byte(good), testVM); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	entity := "<!DOCTYPE x [<!ENTITY a SYSTEM 'file:///etc/shadow'>]>"
	for name, bad := range map[string]string{
		"another VM":     strings.Replace(goodCookie, "0001<", "0002<", 1),
		"no VM":          "<qemu-migration></qemu-migration>",
		"two VMs":        strings.Replace(goodCookie, "<hostname>", "<uuid>x</uuid><hostname>", 1),
		"another root":   "<domain><uuid>" + testVM + "</uuid></domain>",
		"an entity":      entity + goodCookie,
		"an unknown one": strings.Replace(goodCookie, "n1", "&a;", 1),
		"an instruction": "<?xml-stylesheet href='file:///etc/shadow'?>" + goodCookie,
		"half of it":     goodCookie[:40],
		"no XML":         "\x00\x01",
		"deep":           "<qemu-migration>" + strings.Repeat("<a>", maxDepth) + strings.Repeat("</a>", maxDepth) + "</qemu-migration>",
		"long":           goodCookie + strings.Repeat(" ", maxCookie),
	} {
		if err := CheckCookie([]byte(bad), testVM); !errors.Is(err, ErrShape) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzCheckCookie(f *testing.F) {
	f.Add([]byte(goodCookie))
	f.Fuzz(func(t *testing.T, data []byte) {
		if CheckCookie(data, testVM) == nil && len(data) > 0 && !strings.Contains(string(data), "qemu-migration") {
			t.Errorf("accepted: %q", data)
		}
	})
}
