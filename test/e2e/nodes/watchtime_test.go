//go:build cluster && !slow

package nodes

import "time"

const watchPeriod = 10 * time.Second
