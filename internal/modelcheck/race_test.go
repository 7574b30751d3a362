//go:build race

package modelcheck

const raceEnabled = true
