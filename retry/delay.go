package retry

import (
	"math"
	"time"
)

// Base is the delay before the n-th retry, from 1, without jitter: never negative, never above Max. A retry below 1
// has none.
func (p Policy) Base(retry int) time.Duration {
	p = p.inRange()
	if retry < 1 {
		return 0
	}
	factor := 1.0
	switch p.Strategy {
	case None:
		return 0
	case Constant:
	case Linear:
		factor = float64(retry)
	default:
		factor = math.Pow(p.Multiplier, float64(retry-1)) // perhaps +Inf, which the cap takes care of
	}
	if p.Initial == 0 {
		return 0
	}
	return time.Duration(min(float64(p.Initial)*factor, float64(p.Max)))
}

// Delay is the wait before an attempt, in whole microseconds: none before attempt 1, Base(1) with jitter before
// attempt 2. A roll in [0, 1) spreads it evenly over ±JitterPercent. Jitter comes after the cap, so that a delay may be
// that much longer than Max (seed 000 §2.1: 818 ms).
func (p Policy) Delay(attempt int, roll float64) time.Duration {
	p = p.inRange()
	roll = within(roll, 0, 1)
	// The conversion keeps compilers from fusing multiply and add: the vectors must come out alike everywhere.
	spread := 1 + float64(p.JitterPercent/100*(2*roll-1))
	micros := math.Round(float64(p.Base(attempt-1)) / 1000 * spread)
	return time.Duration(micros) * time.Microsecond
}

// Roll is the dice of one attempt, in [0, 1): always the same for the same seed, call and attempt, and as good as random
// across them. It is FNV-1a (64 bit) over the seed (8 bytes, little-endian), the call id (its UTF-8 bytes) and the
// attempt (8 bytes, little-endian), then the finalizer of splitmix64:
//
//	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
//	z = (z ^ z>>27) * 0x94d049bb133111eb
//	z =  z ^ z>>31
//
// all modulo 2^64; the highest 53 bits divided by 2^53 are the roll.
func Roll(seed uint64, call string, attempt int) float64 {
	h := uint64(0xcbf29ce484222325)
	h = fnvInt(h, seed)
	for i := range len(call) {
		h = fnvByte(h, call[i])
	}
	h = fnvInt(h, uint64(attempt))

	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	h ^= h >> 31
	return float64(h>>11) / (1 << 53)
}

func fnvByte(h uint64, b byte) uint64 { return (h ^ uint64(b)) * 0x100000001b3 }

func fnvInt(h, v uint64) uint64 {
	for shift := 0; shift < 64; shift += 8 {
		h = fnvByte(h, byte(v>>shift))
	}
	return h
}
