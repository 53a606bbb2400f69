//go:build cluster && slow

package nodes

import "time"

const watchPeriod = time.Minute
