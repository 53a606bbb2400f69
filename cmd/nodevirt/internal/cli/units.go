package cli

import (
	"fmt"
	"strconv"
	"time"
)

// Bytes formats a size in binary units: "512 MiB", "1.5 GiB".
func Bytes(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	v, names := float64(n)/unit, "KMGTPE"
	i := 0
	for ; v >= unit && i < len(names)-1; i++ {
		v /= unit
	}
	text := strconv.FormatFloat(v, 'f', 1, 64)
	if whole, ok := cutZero(text); ok {
		text = whole
	}
	return fmt.Sprintf("%s %ciB", text, names[i])
}

func cutZero(text string) (string, bool) {
	const zero = ".0"
	if n := len(text) - len(zero); n > 0 && text[n:] == zero {
		return text[:n], true
	}
	return text, false
}

// Age formats a duration in its two largest units: "3d4h", "12m", "45s".
func Age(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 10*time.Minute:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}

// ShortID returns an ID as crictl's lists show it.
func ShortID(id string) string { return id[:min(len(id), 13)] }
