package control

import "testing"

func TestBounded(t *testing.T) {
	b := Bounded{Most: 5}
	for _, part := range []string{"abc", "de"} {
		if n, err := b.Write([]byte(part)); n != len(part) || err != nil || b.More {
			t.Errorf("%s: %d, %v, %t", part, n, err, b.More)
		}
	}
	if n, err := b.Write([]byte("f")); n != 1 || err != nil || !b.More || string(b.Text) != "abcde" {
		t.Errorf("%d, %v: %q, %t", n, err, b.Text, b.More)
	}
}
