package vmspec

import (
	"strings"
	"testing"
)

// TestVolumeKindsAreWhole checks that each kind a VMI can name says all that its
// readers ask for.
func TestVolumeKindsAreWhole(t *testing.T) {
	for _, k := range kindTables().fields {
		if k.given == nil || k.read == nil || len(k.rows)+len(k.podRows) == 0 {
			t.Errorf("%s: given, read or rows is missing", k.Field)
		}
		if needed := k.Needs != NeedNothing; needed != (k.pod != nil) {
			t.Errorf("%s: needs %q of its pod, and pod is set: %t", k.Field, k.Needs, k.pod != nil)
		}
	}
}

// TestTransfer: a live migration has a way for each kind of disk, or a reason against it.
func TestTransfer(t *testing.T) {
	for _, tt := range []struct {
		disk Disk
		want Transfer
		why  string
	}{
		{Disk{Source: SourceImage}, TransferCopied, ""},
		{Disk{Source: SourceImage, CDROM: true}, TransferRemade, ""},
		{Disk{Source: SourceVolume, Mode: ModeRaw}, TransferCopied, ""},
		{Disk{Source: SourceVolume, ReadOnly: true}, TransferRemade, ""},
		{Disk{Source: SourceImage, Mode: ModeISCSI}, TransferNone, "mode iscsi"},
		{Disk{Source: SourceEmpty}, TransferCopied, ""},
		{Disk{Source: SourceEphemeral}, TransferCopied, ""},
		{Disk{Source: SourcePVC}, TransferShared, ""},
		{Disk{Source: SourcePVC, ReadOnly: true}, TransferShared, ""},
		{Disk{Source: SourceISCSI}, TransferShared, ""},
		{Disk{Source: SourceRBD}, TransferShared, ""},
		{Disk{Source: SourceHostDisk, Shared: true}, TransferShared, ""},
		{Disk{Source: SourceHostDisk}, TransferNone, "not shared"},
		{Disk{Source: SourceImport}, TransferNone, "imported"},
		{Disk{Source: "other"}, TransferNone, "imported"},
	} {
		got, why := tt.disk.Transfer()
		if got != tt.want || !strings.Contains(why, tt.why) || (why == "") != (tt.why == "") {
			t.Errorf("%+v: %q, %q", tt.disk, got, why)
		}
	}
	for _, k := range VolumeKinds() {
		if k.Fixed && !k.FilesOnly && k.Transfer != TransferRemade {
			t.Errorf("%s: the guest can't write it, and the target does not make it", k.Field)
		}
		if k.Field != "" && !k.FilesOnly && k.Transfer == TransferNone {
			t.Errorf("%s: a live migration has no way for it", k.Field)
		}
	}
}
