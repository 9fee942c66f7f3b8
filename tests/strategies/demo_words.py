"""What the demonstration must say, whatever the speed of the machine it runs on."""

# Which type the web gets instead of what was taken depends on how many of its nodes are taken at a time, and that on
# the machine's load; the reason does not.
TOO_RISKY_FOR_THE_WEB = (
    r"spot is \$0\.27/h cheaper, but 7\.5% risk × \$32 an interruption = \$2\.40/h"
    r"|spot is \$0\.48/h cheaper, but 5% risk × \$32 an interruption = \$1\.60/h"
)
