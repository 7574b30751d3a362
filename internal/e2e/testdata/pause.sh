#!/bin/sh
# A tool that takes as long as it is told, {"seconds":0.5}, and writes down in $JOURNAL when it starts, ends or is told to
# stop. The process id is that of its group as well: the worker makes every command the leader of one.
say() { echo "$1 $TOOLBUS_TOOL ${TOOLBUS_CALL:--} ${TOOLBUS_ATTEMPT:-0} $WORKER $$" >>"$JOURNAL"; }
trap 'say term; exit 143' TERM
say start
args=$(cat)
seconds=${args#*:}
sleep "${seconds%\}*}" &
wait $!
say end
echo "{\"worker\":\"$WORKER\",\"attempt\":${TOOLBUS_ATTEMPT:-0}}"
