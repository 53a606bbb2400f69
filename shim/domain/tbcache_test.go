package domain

import "testing"

// TestTBCache: the cache of translated code fits into what QEMU may use, which kills it otherwise.
func TestTBCache(t *testing.T) {
	for _, tt := range []struct {
		ram, limit int64
		want       uint
	}{
		{64 * mib, 0, 32}, {192 * mib, 0, 48}, {1024 * mib, 0, 256}, {8192 * mib, 0, 512},
		{128 * mib, 96 * mib, 32}, {192 * mib, 96 * mib, 32}, {1024 * mib, 96 * mib, 32}, {1024 * mib, 352 * mib, 256}, {1024 * mib, 1, 16},
	} {
		if got := tbCache(tt.ram, tt.limit).Size; got != tt.want {
			t.Errorf("RAM %d MiB, limit %d MiB: %d MiB, want %d", tt.ram/mib, tt.limit/mib, got, tt.want)
		}
	}
}
