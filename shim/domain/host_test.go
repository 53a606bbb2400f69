package domain

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// hostXML is what libvirt 9.0 said of a node, shortened.
func hostXML(t *testing.T, a string) capabilityXML {
	t.Helper()
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join("testdata", "host", name+".xml"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	return capabilityXML{host: read("host"), domain: read(a + "-domain"), cpu: read("tcg-cpu")}
}

func TestHostCapabilities(t *testing.T) {
	tcg, err := hostXML(t, "tcg").read(TCG)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"microvm", "pc", "pc-i440fx-7.2", "pc-q35-5.2", "pc-q35-7.2", "q35"}; !slices.Equal(tcg.Machines, want) {
		t.Errorf("machines: %v", tcg.Machines)
	}
	if tcg.HostModel != "EPYC" || tcg.Vendor != "AMD" || !slices.Contains(tcg.HostFeatures, "umip") || slices.Contains(tcg.HostFeatures, "misalignsse") {
		t.Errorf("host-model: %s of %s with %v", tcg.HostModel, tcg.Vendor, tcg.HostFeatures)
	}
	if !slices.Contains(tcg.Models, "Nehalem") || slices.Contains(tcg.Models, "EPYC-Milan") || !slices.Contains(tcg.KnownModels, "EPYC-Milan") {
		t.Errorf("models: %v of %v", tcg.Models, tcg.KnownModels)
	}
	if !slices.Contains(tcg.Features, "avx2") || slices.Contains(tcg.Features, "misalignsse") || !slices.IsSorted(tcg.Features) {
		t.Errorf("features: %v", tcg.Features)
	}
	// TCG has neither: a guest does without enlightenments.
	if len(tcg.Hyperv) > 0 || tcg.TSC != 0 {
		t.Errorf("with TCG: %v, %d Hz", tcg.Hyperv, tcg.TSC)
	}
	kvm, err := hostXML(t, "kvm").read(KVM)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"relaxed", "spinlocks", "stimer", "synic", "vendor_id", "vpindex"}; !slices.Equal(kvm.Hyperv, want) {
		t.Errorf("hyperv: %v", kvm.Hyperv)
	}
	if kvm.TSC != 2_300_000_000 || kvm.TSCScaling {
		t.Errorf("TSC: %d Hz, scaling %v", kvm.TSC, kvm.TSCScaling)
	}
	if _, err := (capabilityXML{host: "<capabilities/>", domain: "<"}).read(KVM); err == nil {
		t.Error("half an element was read")
	}
}

// TestHostModelCPU: libvirt gets the CPU of host-model as a definition; there may be none.
func TestHostModelCPU(t *testing.T) {
	text, err := hostModelCPU(hostXML(t, "tcg").domain)
	if err != nil || text == "" {
		t.Fatalf("%q, %v", text, err)
	}
	for domain, fails := range map[string]bool{"<domainCapabilities/>": false, "": true} {
		if text, err := hostModelCPU(domain); text != "" || (err != nil) != fails {
			t.Errorf("%q: %q, %v", domain, text, err)
		}
	}
}

// TestHost asks a real libvirtd.
func TestHost(t *testing.T) {
	startLibvirtd(t)
	d := startDriver(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	caps, err := d.Host.Capabilities(ctx, TCG, "/usr/bin/qemu-system-x86_64")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(caps.Machines, "q35") || !slices.Contains(caps.Models, "qemu64") ||
		!slices.Contains(caps.Features, "sse2") || caps.HostModel == "" || len(caps.KnownModels) <= len(caps.Models) {
		t.Errorf("%+v", caps)
	}
}
